// What the config's variants make of a whole chain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muoncore/core/check.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/optim/adamw.h"
#include "muoncore/optim/build.h"
#include "muoncore/optim/lion.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<NamedParam> small_model(at::ScalarType dtype = at::kFloat) {
  return {named("embed", ParamRole::kEmbedding, {20, 12}, dtype),
          named("up", ParamRole::kMatrix, {16, 12}, dtype),
          named("down", ParamRole::kMatrix, {12, 24}, dtype),
          named("norm", ParamRole::kNorm, {12}, dtype)};
}

OptimizerConfig config() {
  OptimizerConfig c;
  c.optimizer = "muon";
  c.lr = 0.02;
  c.weight_decay = 0.1;
  c.muon_fp32_matmul_prec = "highest";
  c.clip_grad = 1.0;
  return c;
}

std::vector<at::Tensor> values_of(const std::vector<NamedParam>& params) {
  std::vector<at::Tensor> out;
  for (const auto& param : params) out.push_back(param.tensor.detach().clone());
  return out;
}

// The chain resumed from its state takes the steps of the uninterrupted one, byte for byte.
void expect_resumes(const OptimizerConfig& c, at::ScalarType dtype = at::kFloat) {
  const auto straight = small_model(dtype), other = small_model(dtype);
  const auto whole = build_optimizer(straight, c), first = build_optimizer(other, c);
  for (int t = 0; t < 4; ++t) {
    set_gradients(straight, t);
    whole->step();
    if (t >= 2) continue;
    set_gradients(other, t);
    first->step();
  }
  std::map<std::string, at::Tensor> state;
  for (const auto& [key, tensor] : first->state()) state[key] = tensor.clone();
  const auto second = build_optimizer(other, c);
  second->load_state(state);
  for (int t = 2; t < 4; ++t) {
    set_gradients(other, t);
    second->step();
  }
  for (size_t i = 0; i < straight.size(); ++i)
    EXPECT_TRUE(same_bytes(straight[i].tensor.detach(), other[i].tensor.detach()))
        << straight[i].spec.name;
}

TEST(BuildVariants, LionUpdatesWhatMuonDoesNot) {
  OptimizerConfig c = config();
  c.muon_scalar_optimizer = "lion";
  c.lion_betas = {0.9, 0.99};
  c.adam_lr = 0.003;
  const auto params = small_model();
  const auto chain = build_optimizer(params, c);
  ASSERT_NE(chain->child("lion"), nullptr);
  EXPECT_EQ(chain->child("adam"), nullptr);
  EXPECT_EQ(chain->routing()[0].optimizer, "lion");
  EXPECT_EQ(chain->param_groups()[1].name, "lion");
  EXPECT_EQ(chain->param_groups()[2].name, "lion_no_decay");
  std::vector<at::Tensor> mine{params[0].tensor.detach().clone().requires_grad_(),
                               params[3].tensor.detach().clone().requires_grad_()};
  LionOptions options(0.003);
  options.betas({0.9, 0.99}).weight_decay(0.1);
  Lion decayed({mine[0]}, options), plain({mine[1]}, LionOptions(options).weight_decay(0.0));
  for (int t = 0; t < 3; ++t) {
    set_gradients(params, t);
    const StepResult result = chain->step();
    mine[0].mutable_grad() = params[0].tensor.grad() * result.clip_coefficient;
    mine[1].mutable_grad() = params[3].tensor.grad() * result.clip_coefficient;
    decayed.step();
    plain.step();
    EXPECT_EQ(result.update_rms.at("lion"), 1.0);
    EXPECT_EQ(result.update_rms.count("adam"), 0u);
    EXPECT_LT(max_difference(params[0].tensor, mine[0]), 1e-7);
    EXPECT_LT(max_difference(params[3].tensor, mine[1]), 1e-7);
  }
  expect_resumes(c);
  expect_resumes(c, at::kBFloat16);
}

TEST(BuildVariants, AdamWithDecayInTheGradient) {
  OptimizerConfig c = config();
  c.optimizer = "adam";
  c.adam_decoupled_weight_decay = false;
  const auto params = small_model();
  const auto chain = build_optimizer(params, c);
  at::Tensor mine = params[0].tensor.detach().clone().requires_grad_();
  AdamW adam({mine}, AdamWOptions(0.02).weight_decay(0.1).decoupled_weight_decay(false));
  for (int t = 0; t < 3; ++t) {
    set_gradients(params, t);
    const at::Tensor kept = params[0].tensor.grad().clone();
    const StepResult result = chain->step();
    EXPECT_TRUE(same_bytes(params[0].tensor.grad(), kept));
    mine.mutable_grad() = kept * result.clip_coefficient;
    adam.step();
    EXPECT_LT(max_difference(params[0].tensor, mine), 1e-7);
    EXPECT_FALSE(result.extra_scale_factor);
  }
}

TEST(BuildVariants, TheFactorOfEachStepIsReported) {
  OptimizerConfig c = config();
  c.betas = {0.9, 0.95};
  c.muon_match_adamw_update_rms = true;
  for (const std::string mode : {"stationary", "bias_corrected", "measured"}) {
    c.muon_match_adamw_update_rms_mode = mode;
    const auto params = small_model();
    const auto chain = build_optimizer(params, c);
    for (int t = 1; t <= 5; ++t) {
      set_gradients(params, t);
      const StepResult result = chain->step();
      const double factor = result.extra_scale_factor.value();
      const double formula = mode == "stationary" ? muon::adamw_rms_match_scale_factor(0.9)
                                                  : muon::adamw_rms_match_scale_factor_at(0.9, t);
      EXPECT_NEAR(factor, formula, mode == "measured" ? 0.15 : 1e-12);
      // spectral: the update's RMS is the factor, up to what five steps leave of exactness
      EXPECT_NEAR(result.update_rms.at("muon") / factor, 1.0, 0.1) << mode << t;
      if (t == 1 && mode == "measured") {
        EXPECT_NEAR(factor, 1.0, 1e-4);  // AdamW's first update is a sign
      }
    }
    expect_resumes(c);
    expect_resumes(c, at::kBFloat16);
  }
}

TEST(BuildVariants, EveryStateResumes) {
  OptimizerConfig ball = config(), moments = config();
  ball.muon_hyperball = true;
  ball.weight_decay = 0.0;
  expect_resumes(ball);
  expect_resumes(ball, at::kBFloat16);
  moments.muon_momentum_kind = "classical";
  moments.muon_pre_transform = "muoneq_rows";
  moments.muon_post_transform = "frobenius";
  for (const char* method : {"adamuon", "normuon"}) {
    moments.muon_moment2_method = method;
    expect_resumes(moments);
  }
}

TEST(BuildVariants, Bf16MatricesWithoutMasters) {
  for (const std::string kind : {"nearest", "stochastic"}) {
    OptimizerConfig c = config();
    c.muon_bf16_params = kind;
    const auto params = small_model(at::kBFloat16);
    const auto chain = build_optimizer(params, c);
    EXPECT_EQ(chain->master_bytes(), 4 * (20 * 12 + 12));  // AdamW's alone
    const auto before = values_of(params);
    set_gradients(params, 0);
    const StepResult result = chain->step();
    EXPECT_EQ(result.ns_calls, 2);
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_FALSE(same_bytes(params[i].tensor.detach(), before[i])) << i;
      EXPECT_EQ(params[i].tensor.scalar_type(), at::kBFloat16);
    }
    EXPECT_EQ(chain->state().count("optimizer.state.fp32_param.up"), 0u);
    EXPECT_EQ(chain->state().count("optimizer.state.fp32_param.embed"), 1u);
    expect_resumes(c, at::kBFloat16);
    EXPECT_THAT([&] { build_optimizer(small_model(), c); },
                ThrowsMessage<Error>(HasSubstr("'up' is Float")));
  }
}

TEST(BuildVariants, SkippedStepTakesNothingIn) {
  OptimizerConfig c = config();
  c.muon_match_adamw_update_rms = true;
  c.muon_match_adamw_update_rms_mode = "measured";
  const auto params = small_model();
  const auto chain = build_optimizer(params, c);
  set_gradients(params, 0);
  chain->step();
  std::map<std::string, at::Tensor> before;
  for (const auto& [key, tensor] : chain->state()) before[key] = tensor.clone();
  params[0].tensor.mutable_grad().fill_(std::nan(""));
  const StepResult result = chain->step();
  EXPECT_TRUE(result.skipped);
  EXPECT_FALSE(result.extra_scale_factor);
  for (const auto& [key, tensor] : chain->state()) EXPECT_TRUE(same_bytes(tensor, before[key]));
}

}  // namespace
}  // namespace muoncore::optim
