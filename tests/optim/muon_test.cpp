#include "muoncore/optim/muon.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muoncore/core/check.h"
#include "muoncore/muon/reference.h"
#include "tests/muon/golden.h"
#include "tests/muon/inputs.h"

namespace muoncore::optim {
namespace {

using muoncore::testing::gaussian;
using muoncore::testing::golden_manifest;
using muoncore::testing::golden_tensor;
using muoncore::testing::of_limit;
using muoncore::testing::relative_error;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::optim::OptimizerParamGroup;

at::Tensor leaf(at::IntArrayRef shape, uint64_t seed = 1, at::ScalarType dtype = at::kFloat) {
  return gaussian(shape, seed, dtype).requires_grad_();
}

MuonOptions exact(double lr = 0.02) {
  MuonOptions o(lr);
  o.fp32_matmul_prec("highest").weight_decay(0.0);
  return o;
}

MuonOptions options_of(const nlohmann::json& h) {
  MuonOptions o(h.at("lr").get<double>());
  o.momentum(h.at("momentum")).nesterov(h.at("nesterov")).weight_decay(h.at("weight_decay"));
  o.fp32_matmul_prec(h.at("fp32_matmul_prec")).coefficient_type(h.at("coefficient_type"));
  o.num_ns_steps(h.at("num_ns_steps"))
      .scale_mode(h.at("scale_mode"))
      .extra_scale_factor(h.at("extra_scale_factor"));
  o.weight_decay_method(h.value("weight_decay_method", "decoupled"));
  if (h.contains("moment2_method"))
    o.moment2_method(h.at("moment2_method")).beta2(h.at("beta2")).moment2_eps(h.at("eps"));
  return o.ns_eps(1e-7).upstream_exact(true);
}

void expect_trajectory(const nlohmann::json& c, const MuonOptions& options,
                       const std::string& inputs, const std::string& name,
                       const std::string& output, const RowBlocks& blocks = {}) {
  SCOPED_TRACE(output);
  at::Tensor p = golden_tensor(inputs + "/param/" + name).requires_grad_();
  at::Tensor grads = golden_tensor(inputs + "/grad/" + name), expected = golden_tensor(output);
  Muon muon(std::vector<at::Tensor>{p}, options);
  ParamSpec spec;
  spec.name = name;
  spec.blocks = blocks;
  muon.set_spec(p, spec);
  for (int64_t k = 0; k < c.at("steps").get<int64_t>(); ++k) {
    p.mutable_grad() = grads.select(0, k);
    muon.step();
    EXPECT_LE(of_limit(p, expected.select(0, k), c.at("atol"), c.at("rtol")), 1.0) << "step " << k;
  }
}

TEST(Muon, EqualsUpstreamsTrajectories) {
  for (const auto& c : golden_manifest().at("muon")) {
    const std::string id = c.at("id");
    for (const char* name : {"W0", "W1", "W2"})
      expect_trajectory(c, options_of(c.at("hyper")), "muon/in", name,
                        "muon/" + id + "/param/" + name);
  }
}

TEST(Muon, EqualsTorchsMuon) {
  for (const auto& c : golden_manifest().at("torch_muon")) {
    const auto& h = c.at("hyper");
    MuonOptions o(h.at("lr").get<double>());
    o.momentum(h.at("momentum")).nesterov(h.at("nesterov")).weight_decay(h.at("weight_decay"));
    o.coefficient_type("custom").custom_coefficients(
        h.at("ns_coefficients").get<std::vector<double>>());
    o.scale_mode(h.at("adjust_lr_fn"));  // fp32_matmul_prec medium is the default, as torch's bf16
    for (const char* name : {"W0", "W1", "W2"})
      expect_trajectory(c, o, "muon/in", name,
                        "muon/" + c.at("id").get<std::string>() + "/param/" + name);
  }
}

TEST(Muon, SplitsFusedQkvAsDeclared) {
  for (const auto& c : golden_manifest().at("qkv")) {
    const std::string name = c.at("name");
    const RowBlocks blocks{c.at("blocks").get<std::vector<int64_t>>(), false};
    expect_trajectory(c, options_of(c.at("hyper")), "qkv/in", name,
                      "qkv/" + c.at("id").get<std::string>(), blocks);
  }
}

// The formula, written out in fp64.
TEST(Muon, OneStepIsTheFormula) {
  at::Tensor p = leaf({10, 6}), before = p.detach().clone();
  MuonOptions o = exact(0.1).nesterov(true).weight_decay(0.3).extra_scale_factor(0.2);
  Muon muon(std::vector<at::Tensor>{p}, o);
  p.mutable_grad() = gaussian({10, 6}, 9);
  muon.step();
  at::Tensor m = p.grad().to(at::kDouble) * 0.05;
  at::Tensor u = p.grad().to(at::kDouble) * 0.05 + m * 0.95;
  at::Tensor expected = before.to(at::kDouble) * (1 - 0.1 * 0.3) -
                        0.1 * 0.2 * std::sqrt(10.0) * muon::reference::newton_schulz(u, {});
  EXPECT_LE(relative_error(p, expected), 1e-6);
  EXPECT_LE(relative_error(muon.param_state(p).at("momentum_buffer"), m), 1e-6);
}

TEST(Muon, GroupsKeepTheirOwnOptions) {
  at::Tensor a = leaf({4, 6}, 1), b = leaf({4, 6}, 2), c = leaf({4, 6}, 3);
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{a}, std::make_unique<MuonOptions>(exact(0.5)));
  groups.emplace_back(std::vector<at::Tensor>{b});
  Muon muon(groups, exact(0.25).momentum(0.5));
  muon.add_param_group(
      {std::vector<at::Tensor>{c}, std::make_unique<MuonOptions>(exact(0.125).nesterov(true))});
  auto options = [&](size_t i) {
    return static_cast<const MuonOptions&>(muon.param_groups()[i].options());
  };
  EXPECT_EQ(options(0).lr(), 0.5);
  EXPECT_EQ(options(0).momentum(), 0.95);
  EXPECT_EQ(options(1).lr(), 0.25);
  EXPECT_EQ(options(1).momentum(), 0.5);
  EXPECT_EQ(options(2).lr(), 0.125);
  EXPECT_TRUE(options(2).nesterov());
  at::Tensor g = gaussian({4, 6}, 4);
  std::vector<at::Tensor> before{a.detach().clone(), b.detach().clone(), c.detach().clone()};
  for (at::Tensor& p : std::vector<at::Tensor>{a, b, c}) p.mutable_grad() = g;
  muon.step();
  at::Tensor direction = muon::reference::newton_schulz(g, {}) * std::sqrt(6.0);
  EXPECT_LE(relative_error(before[0] - a, direction * 0.5), 1e-5);
  EXPECT_LE(relative_error(before[1] - b, direction * 0.25), 1e-5);
  EXPECT_LE(relative_error(before[2] - c, direction * 0.125), 1e-5);
  ASSERT_EQ(muon.last_stats().size(), 3u);
  EXPECT_EQ(muon.last_stats()[2].matrices, 1);
}

TEST(Muon, MeasuresTheRmsOfItsUpdate) {
  at::Tensor p = leaf({32, 96});
  Muon muon(std::vector<at::Tensor>{p}, exact(0.01).extra_scale_factor(0.2).weight_decay(10.0));
  p.mutable_grad() = gaussian({32, 96}, 5);
  muon.step();
  const GroupStats& stats = muon.last_stats()[0];
  EXPECT_EQ(stats.elements, 32 * 96);
  EXPECT_NEAR(stats.update_rms(), 0.2,
              0.006);  // spectral: RMS = extra factor, weight decay left out
  muon.set_measure_update_rms(false);
  muon.step();
  EXPECT_EQ(muon.last_stats()[0].update_square_sum, 0.0);
}

TEST(Muon, ClipCoefficientScalesTheMomentumAndWritesNoGradient) {
  for (bool nesterov : {false, true}) {
    at::Tensor p = leaf({6, 8}), q = p.detach().clone().requires_grad_();
    Muon clipped(std::vector<at::Tensor>{p}, exact().nesterov(nesterov));
    Muon plain(std::vector<at::Tensor>{q}, exact().nesterov(nesterov));
    for (uint64_t k = 0; k < 3; ++k) {
      at::Tensor g = gaussian({6, 8}, 10 + k), before = g.clone();
      const double clip = k == 1 ? 1e-12 : 0.5;  // a tiny coefficient must not freeze the step
      p.mutable_grad() = g;
      q.mutable_grad() = g * clip;
      clipped.step_with({clip});
      plain.step_with({});
      EXPECT_TRUE(g.equal(before));
      EXPECT_TRUE(p.equal(q)) << k;
    }
  }
}

TEST(Muon, TinyGradientsGiveFullSteps) {
  for (double scale : {1e-30, 1e-12, 1.0, 1e30}) {
    at::Tensor p = leaf({6, 8});
    at::Tensor before = p.detach().clone();
    Muon muon(std::vector<at::Tensor>{p}, exact(0.1));
    p.mutable_grad() = gaussian({6, 8}, 3) * scale;
    muon.step();
    at::Tensor expected =
        muon::reference::newton_schulz(gaussian({6, 8}, 3), {}) * (0.1 * std::sqrt(8.0));
    EXPECT_LE(relative_error(before - p.detach(), expected), 1e-4) << scale;
  }
}

TEST(Muon, ZeroGradientGivesZeroUpdate) {
  at::Tensor p = leaf({6, 8}), before = p.detach().clone();
  Muon muon(std::vector<at::Tensor>{p}, exact());
  p.mutable_grad() = at::zeros({6, 8});
  muon.step();
  EXPECT_TRUE(p.equal(before));
  EXPECT_EQ(muon.last_stats()[0].matrices, 1);
}

TEST(Muon, ParameterWithoutGradientIsSkipped) {
  at::Tensor p = leaf({6, 8}, 1), q = leaf({6, 8}, 2), before = p.detach().clone();
  Muon muon(std::vector<at::Tensor>{p, q}, exact().weight_decay(0.5));
  q.mutable_grad() = gaussian({6, 8}, 3);
  muon.step();
  EXPECT_TRUE(p.equal(before));
  EXPECT_TRUE(muon.param_state(p).empty());
  EXPECT_EQ(muon.last_stats()[0].matrices, 1);
  EXPECT_EQ(muon.state_bytes(), 6 * 8 * 4);
}

TEST(Muon, BatchesAreSlicesOfTheirOwn) {
  at::Tensor experts = leaf({3, 5, 8}), g = gaussian({3, 5, 8}, 7);
  g.select(0, 1).mul_(1e-15);
  std::vector<at::Tensor> alone;
  for (int64_t i = 0; i < 3; ++i)
    alone.push_back(experts.detach().select(0, i).clone().requires_grad_());
  Muon batched(std::vector<at::Tensor>{experts}, exact()), single(alone, exact());
  experts.mutable_grad() = g;
  for (int64_t i = 0; i < 3; ++i) alone[i].mutable_grad() = g.select(0, i).clone();
  batched.step();
  single.step();
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_LE((experts.select(0, i) - alone[i]).abs().max().item<double>(), 1e-6) << i;
  EXPECT_EQ(batched.last_stats()[0].matrices, 3);
}

TEST(Muon, Bf16ParametersAreRoundedOncePerStep) {
  at::Tensor p = leaf({12, 20}, 1, at::kBFloat16),
             twin = p.detach().to(at::kFloat).requires_grad_();
  Muon low(std::vector<at::Tensor>{p}, exact(0.02).weight_decay(0.1));
  Muon high(std::vector<at::Tensor>{twin}, exact(0.02).weight_decay(0.1));
  at::Tensor g = gaussian({12, 20}, 2, at::kBFloat16), before = g.clone();
  p.mutable_grad() = g;
  twin.mutable_grad() = g.to(at::kFloat);
  low.step();
  high.step();
  EXPECT_TRUE(p.equal(twin.to(at::kBFloat16)));
  EXPECT_TRUE(g.equal(before));
  at::Tensor momentum = low.param_state(p).at("momentum_buffer");
  EXPECT_EQ(momentum.scalar_type(), at::kFloat);
  EXPECT_TRUE(
      momentum.equal(high.param_state(twin).at("momentum_buffer")));  // no aliasing spoiled it
  EXPECT_EQ(low.state_bytes(), 12 * 20 * 4);
  low.step();
  EXPECT_LE(relative_error(low.param_state(p).at("momentum_buffer"),
                           g.to(at::kDouble) * (1 - 0.95 * 0.95)),
            1e-6);
}

TEST(Muon, Fp32GradientOfABf16Parameter) {
  at::Tensor p = leaf({6, 8}, 1, at::kBFloat16);
  Muon muon(std::vector<at::Tensor>{p}, exact());
  p.mutable_grad() = gaussian({6, 8}, 2);
  muon.step();
  EXPECT_LE(relative_error(muon.param_state(p).at("momentum_buffer"), gaussian({6, 8}, 2) * 0.05),
            1e-6);
}

TEST(Muon, Fp64ParametersStayFp64) {
  at::Tensor p = leaf({6, 8}, 1, at::kDouble), before = p.detach().clone();
  Muon muon(std::vector<at::Tensor>{p}, exact(0.1));
  p.mutable_grad() = gaussian({6, 8}, 2, at::kDouble);
  muon.step();
  at::Tensor expected =
      before - muon::reference::newton_schulz(p.grad(), {}) * (0.1 * std::sqrt(8.0));
  EXPECT_LE(relative_error(p, expected), 1e-12);
}

TEST(Muon, NonContiguousParameters) {
  at::Tensor storage = gaussian({8, 12}, 1),
             p = storage.t().detach().requires_grad_();  // [12, 8], strides (1, 12)
  at::Tensor twin = p.detach().contiguous().clone().requires_grad_();
  ParamSpec spec;
  spec.name = "fused";
  spec.blocks = {{4, 2}, false};
  Muon strided(std::vector<at::Tensor>{p}, exact()), plain(std::vector<at::Tensor>{twin}, exact());
  strided.set_spec(p, spec);
  plain.set_spec(twin, spec);
  p.mutable_grad() = gaussian({12, 8}, 2);
  twin.mutable_grad() = gaussian({12, 8}, 2);
  strided.step();
  plain.step();
  EXPECT_LE((p - twin).abs().max().item<double>(), 1e-6);
  EXPECT_EQ(strided.last_stats()[0].matrices, 2);
}

TEST(Muon, DegenerateShapes) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{1, 1}, {1, 9}, {9, 1}, {2, 1, 5}}) {
    at::Tensor p = leaf(shape), before = p.detach().clone(), g = gaussian(shape, 2);
    Muon muon(std::vector<at::Tensor>{p}, exact(0.1));
    p.mutable_grad() = g;
    muon.step();
    at::Tensor expected =
        muon::reference::newton_schulz(g, {}) *
        (0.1 * std::sqrt(static_cast<double>(std::max(shape.end()[-2], shape.back()))));
    EXPECT_LE(relative_error(before - p.detach(), expected), 1e-5)
        << ::testing::PrintToString(shape);
  }
}

TEST(Muon, RunsTheClosureWithGradientsOn) {
  at::Tensor p = leaf({4, 6}), before = p.detach().clone();
  Muon muon(std::vector<at::Tensor>{p}, exact());
  at::Tensor loss = muon.step([&] {
    at::Tensor value = p.square().sum();
    value.backward();
    return value;
  });
  EXPECT_NEAR(loss.item<double>(), before.square().sum().item<double>(), 1e-4);
  EXPECT_FALSE(p.equal(before));
}

TEST(Muon, RefusesWhatItCannotDo) {
  auto build = [](std::vector<at::Tensor> params, MuonOptions o = {}) {
    Muon muon(std::move(params), o);
  };
  EXPECT_THAT([&] { build({at::ones({4})}); }, ThrowsMessage<Error>(HasSubstr("shape [4]")));
  EXPECT_THAT(
      [&] {
        build({at::ones({1, 2, 3, 4})});
      },
      ThrowsMessage<Error>(HasSubstr("[1, 2, 3, 4]")));
  EXPECT_THAT([&] { build({}, MuonOptions(-1.0)); }, ThrowsMessage<Error>(HasSubstr("lr")));
  EXPECT_THAT([&] { build({}, MuonOptions().momentum(1.0)); },
              ThrowsMessage<Error>(HasSubstr("[0, 1)")));
  EXPECT_THAT([&] { build({}, MuonOptions().momentum(NAN)); },
              ThrowsMessage<Error>(HasSubstr("momentum")));
  EXPECT_THAT([&] { build({}, MuonOptions().weight_decay(-1)); },
              ThrowsMessage<Error>(HasSubstr("weight_decay")));
  EXPECT_THAT([&] { build({}, MuonOptions().extra_scale_factor(0)); },
              ThrowsMessage<Error>(HasSubstr("extra_scale")));
  EXPECT_THAT([&] { build({}, MuonOptions().scale_mode("x")); },
              ThrowsMessage<Error>(HasSubstr("spectral")));
  EXPECT_THAT([&] { build({}, MuonOptions().coefficient_type("aol")); },
              ThrowsMessage<Error>(HasSubstr("round")));
  EXPECT_THAT(
      [&] {
        build({}, MuonOptions().custom_coefficients({1, 2}));
      },
      ThrowsMessage<Error>(HasSubstr("multiple of 3")));
  EXPECT_THAT([&] { build({}, MuonOptions().moment2_method("x")); },
              ThrowsMessage<Error>(HasSubstr("normuon")));
  EXPECT_THAT([&] { build({}, MuonOptions().beta2(1)); }, ThrowsMessage<Error>(HasSubstr("beta2")));
  EXPECT_THAT([&] { build({}, MuonOptions().moment2_method("namo").weight_decay_method("l2")); },
              ThrowsMessage<Error>(HasSubstr("namo")));
  EXPECT_THAT([&] { build({}, MuonOptions().ns_eps(-1.0)); },
              ThrowsMessage<Error>(HasSubstr("ns_eps")));
}

TEST(Muon, SpecificationsMustFit) {
  at::Tensor p = leaf({10, 4}), stranger = leaf({8, 4});
  Muon muon(std::vector<at::Tensor>{p}, exact());
  ParamSpec spec;
  spec.name = "layers.0.qkv";
  spec.blocks = {{4, 2, 2}, false};
  EXPECT_THAT([&] { muon.set_spec(p, spec); },
              ThrowsMessage<Error>(HasSubstr("layers.0.qkv: 10 rows")));
  EXPECT_THAT([&] { muon.set_spec(stranger, spec); },
              ThrowsMessage<Error>(HasSubstr("does not update")));
}

TEST(Muon, SecondMomentsAreKeptPerLogicalMatrix) {
  for (const std::string method : {"adamuon", "normuon", "namo"}) {
    SCOPED_TRACE(method);
    at::Tensor fused = leaf({12, 8}, 1);
    std::vector<at::Tensor> parts{fused.detach().slice(0, 0, 8).clone().requires_grad_(),
                                  fused.detach().slice(0, 8, 12).clone().requires_grad_()};
    MuonOptions o = exact().moment2_method(method);
    Muon whole(std::vector<at::Tensor>{fused}, o), apart(parts, o);
    ParamSpec spec;
    spec.name = "gate_up";
    spec.blocks = {{8, 4}, false};
    whole.set_spec(fused, spec);
    for (uint64_t k = 0; k < 3; ++k) {
      fused.mutable_grad() = gaussian({12, 8}, 20 + k);
      parts[0].mutable_grad() = fused.grad().slice(0, 0, 8).clone();
      parts[1].mutable_grad() = fused.grad().slice(0, 8, 12).clone();
      whole.step();
      apart.step();
      EXPECT_LE((fused.detach().slice(0, 0, 8) - parts[0]).abs().max().item<double>(), 1e-6);
      EXPECT_LE((fused.detach().slice(0, 8, 12) - parts[1]).abs().max().item<double>(), 1e-6);
    }
    const int64_t moments = method == "adamuon" ? 96 : method == "normuon" ? 8 + 8 : 2;
    EXPECT_EQ(whole.param_state(fused).at("second_moment").numel(), moments);
    EXPECT_EQ(whole.state_bytes(), 4 * 96 + (method == "namo" ? 8 : 4) * moments);
  }
}

// What a rank that owns no matrix holds.
TEST(Muon, WithoutParametersStepsAndCountsNothing) {
  for (bool grouped : {false, true}) {
    Muon muon =
        grouped ? Muon(std::vector<at::Tensor>{}) : Muon(std::vector<OptimizerParamGroup>{});
    muon.step();
    muon.step_with({0.5});
    EXPECT_EQ(muon.state_bytes(), 0);
    for (const GroupStats& stats : muon.last_stats()) {
      EXPECT_EQ(stats.matrices, 0);
      EXPECT_EQ(stats.elements, 0);
      EXPECT_EQ(stats.update_rms(), 0.0);
    }
    muon.add_param_group({std::vector<at::Tensor>{}});
    muon.step();
    EXPECT_EQ(muon.last_stats().size(), muon.param_groups().size());
  }
}

// A shard's optimizer: here all it does is to see what it is asked for.
class RecordingMuon : public Muon {
 public:
  using Muon::Muon;
  std::vector<std::vector<int64_t>> asked;
  std::vector<std::string> names;
  int calls = 0;

 protected:
  std::vector<at::Tensor> orthogonalize(const std::vector<MuonPart>& parts,
                                        const muon::OrthogonalizeOptions& options) override {
    ++calls;
    std::vector<at::Tensor> out;
    for (const MuonPart& part : parts) {
      asked.push_back(part.direction.sizes().vec());
      names.push_back(part.spec->name);
      EXPECT_EQ(options.newton_schulz.steps, 5);
      out.push_back(at::ones_like(part.direction));
    }
    return out;
  }
  MatrixShape scale_shape(const MuonPart& part) const override {
    return {2 * part.direction.size(-2), part.direction.size(-1)};
  }
  void check_supported(const MuonOptions& options) const override {
    check(options.moment2_method() == "none", "no second moments here");
  }
};

TEST(Muon, AShardsOptimizerSeesEveryPartAndSetsItsScale) {
  at::Tensor fused = leaf({8, 4}, 1), plain = leaf({4, 6}, 2), before = fused.detach().clone();
  RecordingMuon muon(std::vector<at::Tensor>{fused, plain}, exact(0.5));
  ParamSpec spec;
  spec.name = "qkv";
  spec.shape = {16, 4};
  spec.blocks = {{2, 1, 1}, false};
  spec.partition_dim = 0;
  muon.set_spec(fused, spec);
  fused.mutable_grad() = gaussian({8, 4}, 3);
  plain.mutable_grad() = gaussian({4, 6}, 4);
  muon.step();
  EXPECT_EQ(muon.calls, 1);
  EXPECT_EQ(muon.asked, (std::vector<std::vector<int64_t>>{{4, 4}, {2, 4}, {2, 4}, {4, 6}}));
  EXPECT_EQ(muon.names, (std::vector<std::string>{"qkv", "qkv", "qkv", ""}));
  // the query part's scale is that of 8 rows, the others' that of 4
  at::Tensor moved = before - fused.detach();
  EXPECT_NEAR(moved[0][0].item<double>(), 0.5 * std::sqrt(8.0), 1e-6);
  EXPECT_NEAR(moved[2][0].item<double>(), 0.5 * 2.0, 1e-6);
  EXPECT_EQ(muon.last_stats()[0].matrices, 4);
  muon.add_param_group({std::vector<at::Tensor>{leaf({2, 2})},
                        std::make_unique<MuonOptions>(exact().moment2_method("normuon"))});
  before = fused.detach().clone();
  EXPECT_THAT([&] { muon.step(); }, ThrowsMessage<Error>(HasSubstr("no second moments")));
  EXPECT_TRUE(fused.equal(before));
}

TEST(Muon, WeightDecayCanBeScheduled) {
  at::Tensor p = leaf({4, 6});
  Muon muon(std::vector<at::Tensor>{p}, exact().weight_decay(0.3));
  EXPECT_EQ(muon.weight_decay(0), 0.3);
  muon.set_weight_decay(0, 0.1);
  EXPECT_EQ(muon.weight_decay(0), 0.1);
  muon.param_groups()[0].options().set_lr(0.7);
  EXPECT_EQ(muon.param_groups()[0].options().get_lr(), 0.7);
}

}  // namespace
}  // namespace muoncore::optim
