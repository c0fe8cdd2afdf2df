// Muon's variants where the random comparison (muon_random_test.cpp) does not look: what they
// promise over many steps, and at their edges.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muoncore/core/check.h"
#include "muoncore/optim/muon.h"
#include "tests/muon/inputs.h"

namespace muoncore::optim {
namespace {

using muoncore::testing::gaussian;
using muoncore::testing::relative_error;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

at::Tensor leaf(at::IntArrayRef shape, uint64_t seed = 1, at::ScalarType dtype = at::kFloat) {
  return gaussian(shape, seed, dtype).requires_grad_();
}

MuonOptions exact(double lr = 0.02) {
  MuonOptions o(lr);
  o.fp32_matmul_prec("highest").weight_decay(0.0);
  return o;
}

TEST(MuonVariants, ClassicalMomentumTakesTheSameSteps) {
  for (bool nesterov : {false, true}) {
    at::Tensor p = leaf({6, 8}), q = leaf({6, 8});
    Muon ema(std::vector<at::Tensor>{p}, exact().nesterov(nesterov)),
        classical(std::vector<at::Tensor>{q},
                  exact().nesterov(nesterov).momentum_kind("classical"));
    for (uint64_t k = 0; k < 5; ++k) {
      p.mutable_grad() = q.mutable_grad() = gaussian({6, 8}, 10 + k);
      ema.step();
      classical.step();
    }
    EXPECT_LE(relative_error(q, p), 1e-5);
    EXPECT_LE(relative_error(classical.param_state(q).at("momentum_buffer"),
                             ema.param_state(p).at("momentum_buffer") / 0.05),
              1e-5);
  }
}

// Fused blocks and slices keep their own norms; the step's size relative to them is lr.
TEST(MuonVariants, HyperballKeepsTheNormOfEveryLogicalMatrix) {
  at::Tensor fused = leaf({12, 5}, 1), experts = leaf({2, 4, 6}, 2);
  fused.data().slice(0, 8, 12).mul_(10.0);
  experts.data()[1].mul_(1e-3);
  Muon muon(std::vector<at::Tensor>{fused, experts}, exact(0.1).hyperball(true));
  ParamSpec spec;
  spec.name = "gate_up";
  spec.blocks = {{8, 4}, false};
  muon.set_spec(fused, spec);
  const at::Tensor before = fused.detach().clone(), experts_before = experts.detach().clone();
  auto norm = [](const at::Tensor& x) { return x.norm().item<double>(); };
  for (uint64_t k = 0; k < 20; ++k) {
    fused.mutable_grad() = gaussian({12, 5}, 30 + k);
    experts.mutable_grad() = gaussian({2, 4, 6}, 60 + k);
    const at::Tensor last = fused.detach().clone();
    muon.step();
    const at::Tensor moved = fused.detach() - last;
    for (auto [from, to] : std::vector<std::pair<int64_t, int64_t>>{{0, 8}, {8, 12}}) {
      const double radius = norm(before.slice(0, from, to));
      EXPECT_NEAR(norm(fused.detach().slice(0, from, to)) / radius, 1.0, 1e-6);
      // a chord of the sphere: at most lr / (1 - lr), less where the update points along W
      EXPECT_LE(norm(moved.slice(0, from, to)) / radius, 0.1 / 0.9);
      EXPECT_GE(norm(moved.slice(0, from, to)) / radius, 0.03);
    }
    for (int64_t i = 0; i < 2; ++i)
      EXPECT_NEAR(norm(experts.detach()[i]) / norm(experts_before[i]), 1.0, 1e-6);
  }
  EXPECT_EQ(muon.param_state(fused).at("radius").numel(), 2);
  EXPECT_EQ(muon.param_state(experts).at("radius").numel(), 2);
  EXPECT_FALSE(fused.equal(before));
}

// AdaMuon as its paper has it: sign, second moment, and an RMS that the factor alone decides.
TEST(MuonVariants, AlignedUpdatesHaveTheRmsOfTheFactor) {
  at::Tensor fused = leaf({12, 5}, 1), batch = leaf({2, 4, 6}, 2);
  MuonOptions o = exact(0.1).extra_scale_factor(0.2).align_update_rms(true);
  o.pre_transform("sign").moment2_method("adamuon");
  Muon muon(std::vector<at::Tensor>{fused, batch}, o);
  ParamSpec spec;
  spec.name = "gate_up";
  spec.blocks = {{8, 4}, false};
  muon.set_spec(fused, spec);
  for (uint64_t k = 0; k < 4; ++k) {
    const at::Tensor before = fused.detach().clone(), batch_before = batch.detach().clone();
    fused.mutable_grad() = gaussian({12, 5}, 30 + k);
    batch.mutable_grad() = gaussian({2, 4, 6}, 60 + k);
    batch.mutable_grad()[1].zero_();
    muon.step();
    auto rms = [](const at::Tensor& x) { return x.square().mean().sqrt().item<double>(); };
    const at::Tensor moved = fused.detach() - before;
    EXPECT_NEAR(rms(moved.slice(0, 0, 8)), 0.02, 1e-6);
    EXPECT_NEAR(rms(moved.slice(0, 8, 12)), 0.02, 1e-6);
    EXPECT_NEAR(rms((batch.detach() - batch_before)[0]), 0.02, 1e-6);
    EXPECT_EQ(rms((batch.detach() - batch_before)[1]), 0.0);
  }
  EXPECT_THAT([&] { check_options(MuonOptions(o).scale_mode("shape_scaling")); },
              ThrowsMessage<Error>(HasSubstr("align_update_rms sets the size")));
  EXPECT_THAT([&] { check_options(MuonOptions(o).moment2_method("namo")); },
              ThrowsMessage<Error>(HasSubstr("align_update_rms sets the size")));
}

TEST(MuonVariants, HyperballAtItsEdges) {
  at::Tensor p = leaf({4, 5}), before = p.detach().clone();
  Muon muon(std::vector<at::Tensor>{p}, exact(0.1).hyperball(true));
  p.mutable_grad() = at::zeros({4, 5});
  muon.step();  // no direction: the weights stay, but for the rounding of their norm
  EXPECT_LE(relative_error(p, before), 1e-7);
  at::Tensor zero = at::zeros({4, 5}).requires_grad_();
  Muon dead(std::vector<at::Tensor>{zero}, exact().hyperball(true));
  zero.mutable_grad() = at::ones({4, 5});
  EXPECT_THAT([&] { dead.step(); }, ThrowsMessage<Error>(HasSubstr("starts at zero")));
  for (auto change :
       std::vector<void (*)(MuonOptions&)>{[](MuonOptions& o) { o.scale_mode("shape_scaling"); },
                                           [](MuonOptions& o) { o.extra_scale_factor(0.2); },
                                           [](MuonOptions& o) { o.moment2_method("namo"); },
                                           [](MuonOptions& o) { o.post_transform("frobenius"); },
                                           [](MuonOptions& o) { o.adamw_match("measured"); }}) {
    MuonOptions o = exact().hyperball(true);
    change(o);
    EXPECT_THAT([&] { check_options(o); },
                ThrowsMessage<Error>(HasSubstr("sets the size of every update")));
  }
}

// The same bytes in one optimizer with other parameters, or alone, and after a resume; others with
// another seed, step or name.
TEST(MuonVariants, StochasticRoundingIsKeyedBySeedStepAndName) {
  auto run = [](const std::string& name, int64_t seed, bool with_another, int steps) {
    at::Tensor p = leaf({12, 20}, 1, at::kBFloat16), other = leaf({6, 4}, 2, at::kBFloat16);
    std::vector<at::Tensor> params{p};
    if (with_another) params.insert(params.begin(), other);
    Muon muon(params, exact(1e-3).stochastic_rounding(true).seed(seed));
    ParamSpec spec;
    spec.name = name;
    muon.set_spec(p, spec);
    spec.name = "other";
    if (with_another) muon.set_spec(other, spec);
    for (int k = 0; k < steps; ++k) {
      for (at::Tensor& param : params)
        param.mutable_grad() = gaussian(param.sizes(), 5 + static_cast<uint64_t>(k), at::kBFloat16);
      muon.step();
    }
    return p.detach().clone();
  };
  const at::Tensor base = run("w", 3, false, 2);
  EXPECT_TRUE(run("w", 3, true, 2).equal(base));
  EXPECT_FALSE(run("v", 3, false, 2).equal(base));
  EXPECT_FALSE(run("w", 4, false, 2).equal(base));
}

// Steps far below half a unit of the grid: the nearest rounding never moves, the stochastic one
// follows the fp32 weights in the mean.
TEST(MuonVariants, StochasticRoundingFollowsSmallSteps) {
  at::Tensor nearest = at::ones({64, 64}, at::kBFloat16).requires_grad_();
  at::Tensor stochastic = at::ones({64, 64}, at::kBFloat16).requires_grad_();
  at::Tensor twin = at::ones({64, 64}).requires_grad_();
  const MuonOptions o = exact(1e-4);
  Muon a(std::vector<at::Tensor>{nearest}, o), b(std::vector<at::Tensor>{twin}, o),
      c(std::vector<at::Tensor>{stochastic}, MuonOptions(o).stochastic_rounding(true));
  ParamSpec spec;
  spec.name = "w";
  c.set_spec(stochastic, spec);
  for (int k = 0; k < 40; ++k) {
    const at::Tensor g = at::ones({64, 64});
    nearest.mutable_grad() = stochastic.mutable_grad() = g.to(at::kBFloat16);
    twin.mutable_grad() = g;
    for (Muon* muon : {&a, &b, &c}) muon->step();
  }
  auto mean = [](const at::Tensor& x) { return x.detach().to(at::kDouble).mean().item<double>(); };
  // rank one: every step moves every element by lr * sqrt(64) * f(1) / 64
  const double moved = 1.0 - mean(twin);
  EXPECT_NEAR(moved, 40 * 1e-4 * 8 * 0.9783 / 64, 1e-6);
  EXPECT_EQ(mean(nearest), 1.0);
  // 40 draws each of variance step * (gap - step), the gap below 1 being 2^-8; mean of 4096
  EXPECT_NEAR(1.0 - mean(stochastic), moved, 4 * std::sqrt(moved * std::pow(2.0, -8)) / 64);
}

TEST(MuonVariants, StochasticRoundingRefusesBeforeItTouches) {
  at::Tensor p = leaf({4, 6}, 1, at::kBFloat16), q = leaf({4, 6}, 2);
  const at::Tensor before = p.detach().clone();
  Muon muon(std::vector<at::Tensor>{p, q}, exact().stochastic_rounding(true));
  ParamSpec spec;
  spec.name = "w";
  muon.set_spec(p, spec);
  p.mutable_grad() = gaussian({4, 6}, 3, at::kBFloat16);
  q.mutable_grad() = gaussian({4, 6}, 3);
  EXPECT_THAT([&] { muon.step(); }, ThrowsMessage<Error>(HasSubstr("is for bf16 parameters")));
  EXPECT_TRUE(p.equal(before));
  EXPECT_TRUE(muon.param_state(p).empty());
  Muon unnamed(std::vector<at::Tensor>{p}, exact().stochastic_rounding(true));
  EXPECT_THAT([&] { unnamed.step(); }, ThrowsMessage<Error>(HasSubstr("a parameter has none")));
}

TEST(MuonVariants, ContradictionsAreRefused) {
  EXPECT_THAT(
      [] { check_options(MuonOptions().moment2_method("namo").momentum_kind("classical")); },
      ThrowsMessage<Error>(HasSubstr("momentum_kind ema")));
  EXPECT_THAT([] { check_options(MuonOptions().ns_eps(1e-7).pre_transform("muoneq_rows")); },
              ThrowsMessage<Error>(HasSubstr("leave one of the two out")));
  EXPECT_THAT([] { check_options(MuonOptions().custom_iteration_mode("loop")); },
              ThrowsMessage<Error>(HasSubstr("cycle, repeat_last")));
  EXPECT_THAT([] { check_options(MuonOptions().momentum_kind("emma")); },
              ThrowsMessage<Error>(HasSubstr("did you mean ema?")));
}

}  // namespace
}  // namespace muoncore::optim
