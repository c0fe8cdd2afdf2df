#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <sstream>

#include "muoncore/core/check.h"
#include "muoncore/optim/muon.h"
#include "tests/muon/inputs.h"

namespace muoncore::optim {
namespace {

using muoncore::testing::gaussian;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

MuonOptions options() {
  MuonOptions o(0.02);
  return o.nesterov(true)
      .momentum(0.9)
      .weight_decay(0.1)
      .scale_mode("shape_scaling")
      .ns_eps(1e-7)
      .num_ns_steps(4)
      .coefficient_type("simple");
}

void steps(Muon& muon, std::vector<at::Tensor>& params, uint64_t from, uint64_t to) {
  for (uint64_t k = from; k < to; ++k) {
    for (size_t i = 0; i < params.size(); ++i)
      params[i].mutable_grad() = gaussian(params[i].sizes(), 100 * k + i, params[i].scalar_type());
    muon.step();
  }
}

std::vector<at::Tensor> make_params() {
  std::vector<at::Tensor> out;
  out.push_back(gaussian({6, 8}, 1).requires_grad_());
  out.push_back(gaussian({2, 4, 5}, 2).requires_grad_());
  out.push_back(gaussian({5, 3}, 3, at::kBFloat16).requires_grad_());
  return out;
}

TEST(MuonState, ResumedFromAnArchiveEqualsUninterrupted) {
  auto straight = make_params(), first = make_params();
  Muon whole(straight, options()), begun(first, options());
  steps(whole, straight, 0, 6);
  steps(begun, first, 0, 3);
  std::stringstream file;
  torch::serialize::OutputArchive out;
  begun.save(out);
  out.save_to(file);
  Muon resumed(first, MuonOptions(1.0));  // its options come from the archive
  torch::serialize::InputArchive in;
  in.load_from(file);
  resumed.load(in);
  const auto& loaded = static_cast<const MuonOptions&>(resumed.param_groups()[0].options());
  EXPECT_EQ(loaded.scale_mode(), "shape_scaling");
  EXPECT_EQ(loaded.ns_eps(), std::optional<double>(1e-7));
  EXPECT_EQ(loaded.num_ns_steps(), 4);
  EXPECT_EQ(resumed.state_bytes(), begun.state_bytes());
  steps(resumed, first, 3, 6);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(straight[i])) << i;
}

TEST(MuonState, StateByNameIsAnAliasAndComesBack) {
  auto a = make_params(), b = make_params();
  Muon one(a, options()), two(b, options());
  steps(one, a, 0, 2);
  for (size_t i = 0; i < a.size(); ++i) {
    ParamState state = one.param_state(a[i]);
    ASSERT_EQ(state.size(), 1u);
    EXPECT_EQ(state.at("momentum_buffer").scalar_type(), at::kFloat);
    EXPECT_EQ(state.at("momentum_buffer").sizes(), a[i].sizes());
    two.set_param_state(b[i], {{"momentum_buffer", state.at("momentum_buffer").clone()}});
    at::NoGradGuard no_grad;
    b[i].copy_(a[i]);
  }
  steps(one, a, 2, 4);
  steps(two, b, 2, 4);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << i;
}

TEST(MuonState, SecondMomentsResumeToo) {
  for (const std::string method : {"adamuon", "normuon", "namo"}) {
    auto straight = make_params(), first = make_params();
    Muon whole(straight, options().moment2_method(method)),
        begun(first, options().moment2_method(method));
    steps(whole, straight, 0, 4);
    steps(begun, first, 0, 2);
    std::stringstream file;
    torch::serialize::OutputArchive out;
    begun.save(out);
    out.save_to(file);
    Muon resumed(first, options());
    torch::serialize::InputArchive in;
    in.load_from(file);
    resumed.load(in);
    steps(resumed, first, 2, 4);
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(first[i].equal(straight[i])) << method << i;
  }
}

TEST(MuonState, BytesAreFourPerElement) {
  auto params = make_params();
  Muon muon(params, options());
  EXPECT_EQ(muon.state_bytes(), 0);
  steps(muon, params, 0, 1);
  EXPECT_EQ(muon.state_bytes(), 4 * (6 * 8 + 2 * 4 * 5 + 5 * 3));
}

TEST(MuonState, MomentumOfAnotherDtypeIsCastOnLoad) {
  auto params = make_params();
  Muon muon(params, options());
  steps(muon, params, 0, 1);
  auto& state = static_cast<MuonParamState&>(*muon.state()[params[0].unsafeGetTensorImpl()]);
  at::Tensor rounded = state.momentum_buffer().to(at::kBFloat16);
  state.momentum_buffer(rounded);
  std::stringstream file;
  torch::serialize::OutputArchive out;
  muon.save(out);
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  muon.load(in);
  at::Tensor loaded = muon.param_state(params[0]).at("momentum_buffer");
  EXPECT_EQ(loaded.scalar_type(), at::kFloat);
  EXPECT_TRUE(loaded.equal(rounded.to(at::kFloat)));
  EXPECT_NO_THROW(steps(muon, params, 1, 2));
}

TEST(MuonState, WrongStateIsRefused) {
  auto params = make_params();
  Muon muon(params, options());
  auto set = [&](const ParamState& state) { muon.set_param_state(params[0], state); };
  EXPECT_THAT([&] { set({}); }, ThrowsMessage<Error>(HasSubstr("momentum_buffer is missing")));
  EXPECT_THAT(
      [&] {
        set({{"momentum_buffer", at::zeros({8, 6})}});
      },
      ThrowsMessage<Error>(HasSubstr("[8, 6]")));
  EXPECT_THAT(
      [&] {
        set({{"momentum_buffer", at::zeros({6, 8}, at::kDouble)}});
      },
      ThrowsMessage<Error>(HasSubstr("Float")));
  EXPECT_THAT(
      [&] {
        set({{"momentum_buffer", at::zeros({6, 8})}, {"step", at::zeros({})}});
      },
      ThrowsMessage<Error>(HasSubstr("got step")));
  EXPECT_TRUE(muon.param_state(params[0]).empty());
}

// Every option that keeps something between steps, resumed by name and from an archive.
TEST(MuonState, EveryKindOfStateResumesBitwise) {
  const std::vector<std::pair<MuonOptions, std::vector<std::string>>> kinds{
      {options().adamw_match("measured"),
       {"momentum_buffer", "shadow_exp_avg", "shadow_exp_avg_sq", "step"}},
      {options().adamw_match("bias_corrected"), {"momentum_buffer", "step"}},
      {options().scale_mode("spectral").hyperball(true), {"momentum_buffer", "radius"}},
      {options().moment2_method("namo"), {"momentum_buffer", "second_moment"}}};
  for (const auto& [o, names] : kinds) {
    SCOPED_TRACE(names.back());
    auto straight = make_params(), first = make_params(), second = make_params();
    Muon whole(straight, o), begun(first, o), by_name(second, o), from_archive(first, options());
    steps(whole, straight, 0, 4);
    steps(begun, first, 0, 2);
    for (size_t i = 0; i < first.size(); ++i) {
      ParamState state = begun.param_state(first[i]);
      std::vector<std::string> held;
      for (auto& [name, tensor] : state) {
        held.push_back(name);
        tensor = tensor.clone();
      }
      EXPECT_EQ(held, names);
      by_name.set_param_state(second[i], state);
      at::NoGradGuard no_grad;
      second[i].copy_(first[i]);
      state.erase(names.back());
      EXPECT_THAT([&] { by_name.set_param_state(second[i], state); },
                  ThrowsMessage<Error>(HasSubstr(names.back() + " is missing")));
    }
    std::stringstream file;
    torch::serialize::OutputArchive out;
    begun.save(out);
    out.save_to(file);
    torch::serialize::InputArchive in;
    in.load_from(file);
    from_archive.load(in);
    EXPECT_EQ(from_archive.state_bytes(), begun.state_bytes());
    steps(from_archive, first, 2, 4);
    steps(by_name, second, 2, 4);
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_TRUE(first[i].equal(straight[i])) << i;
      EXPECT_TRUE(second[i].equal(straight[i])) << i;
    }
  }
}

TEST(MuonState, ShapesOfTheShadowAndDtypesAreChecked) {
  auto params = make_params();
  Muon muon(params, options().adamw_match("measured"));
  steps(muon, params, 0, 1);
  ParamState good = muon.param_state(params[1]);  // [2, 4, 5]
  EXPECT_EQ(good.at("shadow_exp_avg").sizes(), at::IntArrayRef({2, 4, 5}));
  ParamState bad = good;
  bad["shadow_exp_avg"] = at::zeros({1, 4, 5}, at::kDouble);
  EXPECT_THAT([&] { muon.set_param_state(params[1], bad); },
              ThrowsMessage<Error>(HasSubstr("shadow_exp_avg of shape [1, 4, 5]")));
  bad = good;
  bad["shadow_exp_avg_sq"] = good.at("shadow_exp_avg_sq").to(at::kFloat);
  EXPECT_THAT([&] { muon.set_param_state(params[1], bad); },
              ThrowsMessage<Error>(HasSubstr("shadow_exp_avg_sq must be Double")));
  EXPECT_THAT(
      [&] {
        muon.set_param_state(gaussian({2, 2}), good);
      },
      ThrowsMessage<Error>(HasSubstr("does not update its parameter")));
}

}  // namespace
}  // namespace muoncore::optim
