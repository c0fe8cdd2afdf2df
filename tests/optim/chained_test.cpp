#include "muoncore/optim/chained.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>

#include "muoncore/core/check.h"
#include "muoncore/optim/adamw.h"
#include "muoncore/optim/build.h"
#include "muoncore/optim/muon.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;

// A small body with everything: plain, fused and 3-D matrices, an embedding, a norm, a bias.
std::vector<NamedParam> small_model(at::ScalarType dtype = at::kFloat) {
  std::vector<NamedParam> params{named("embed", ParamRole::kEmbedding, {20, 12}, dtype),
                                 named("qkv", ParamRole::kMatrix, {16, 12}, dtype),
                                 named("qkv_bias", ParamRole::kBias, {16}, dtype),
                                 named("down", ParamRole::kMatrix, {12, 24}, dtype),
                                 named("experts", ParamRole::kMatrix, {3, 8, 12}, dtype),
                                 named("norm", ParamRole::kNorm, {12}, dtype)};
  params[1].spec.blocks.rows = {4, 2, 2};  // two groups
  return params;
}

OptimizerConfig config() {
  OptimizerConfig c;
  c.optimizer = "muon";
  c.lr = 0.02;
  c.weight_decay = 0.1;
  c.betas = {0.9, 0.95};
  c.muon_extra_scale_factor = 0.2;
  c.muon_fp32_matmul_prec = "highest";
  c.clip_grad = 1.0;
  return c;
}

std::vector<at::Tensor> copies(const std::vector<NamedParam>& params) {
  std::vector<at::Tensor> out;
  for (const auto& param : params) out.push_back(param.tensor.detach().clone());
  return out;
}

TEST(ChainedOptimizer, RoutesEveryParameterAndNamesItsGroups) {
  const auto params = small_model();
  const auto chain = build_optimizer(params, config());
  ASSERT_EQ(chain->routing().size(), params.size());
  const auto& groups = chain->param_groups();
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].params, (std::vector<std::string>{"qkv", "down", "experts"}));
  EXPECT_EQ(groups[1].params, (std::vector<std::string>{"embed"}));
  EXPECT_EQ(groups[2].params, (std::vector<std::string>{"qkv_bias", "norm"}));
  EXPECT_EQ(groups[0].weight_decay(), 0.1);
  EXPECT_EQ(groups[2].weight_decay(), 0.0);
  EXPECT_EQ(groups[0].lr(), 0.02);
  EXPECT_EQ(chain->elements_by_optimizer(),
            (std::map<std::string, int64_t>{{"adam", 240 + 16 + 12}, {"muon", 192 + 288 + 288}}));
}

// Against a Muon and a naive AdamW that are given the clipped gradients.
TEST(ChainedOptimizer, OneNormThenEveryChild) {
  const auto params = small_model();
  const auto chain = build_optimizer(params, config());
  std::vector<at::Tensor> mine;
  for (const auto& param : params)
    mine.push_back(param.tensor.detach().clone().set_requires_grad(true));
  Muon muon(
      {mine[1], mine[3], mine[4]},
      MuonOptions(0.02).weight_decay(0.1).extra_scale_factor(0.2).fp32_matmul_prec("highest"));
  muon.set_spec(mine[1], params[1].spec);
  std::map<size_t, ReferenceAdamW> adam;
  for (size_t i : {0, 2, 5}) {
    adam.emplace(i, ReferenceAdamW(mine[i]));
    adam.at(i).lr = 0.02, adam.at(i).beta2 = 0.95;
    adam.at(i).weight_decay = i == 0 ? 0.1 : 0.0;
  }
  for (int t = 0; t < 4; ++t) {
    set_gradients(params, t);
    double square = 0.0;
    for (const auto& param : params)
      square += param.tensor.grad().to(at::kDouble).square().sum().item<double>();
    const double coefficient = std::min(1.0, 1.0 / (std::sqrt(square) + 1e-6));
    ASSERT_LT(coefficient, 0.5);
    const StepResult result = chain->step();
    EXPECT_FALSE(result.skipped);
    EXPECT_NEAR(result.grad_norm, std::sqrt(square), 1e-12 * std::sqrt(square));
    EXPECT_NEAR(result.clip_coefficient, coefficient, 1e-12);
    EXPECT_EQ(result.ns_calls, 3 + 1 + 3);
    double adam_square = 0.0;
    for (size_t i = 0; i < params.size(); ++i) {
      const at::Tensor clipped = params[i].tensor.grad() * coefficient;
      if (auto found = adam.find(i); found != adam.end()) {
        found->second.step(clipped);
        adam_square += found->second.update_rms * found->second.update_rms *
                       static_cast<double>(clipped.numel());
        EXPECT_LT(max_difference(params[i].tensor, found->second.p), 1e-6);
      }
      mine[i].mutable_grad() = clipped;
    }
    muon.step();
    for (size_t i : {1, 3, 4}) EXPECT_LT(max_difference(params[i].tensor, mine[i]), 1e-6) << i;
    EXPECT_NEAR(result.update_rms.at("adam"), std::sqrt(adam_square / 268), 1e-6);
    EXPECT_NEAR(result.update_rms.at("muon"), muon.last_stats()[0].update_rms(), 1e-6);
    EXPECT_NEAR(result.update_rms.at("muon"), 0.2, 0.06);
  }
}

// Clipping stands before momentum: gradients that are all clipped give the same step at any scale,
// which would not hold if the momentum saw them unclipped.
TEST(ChainedOptimizer, ClippedStepsDoNotSeeTheScale) {
  std::vector<std::vector<at::Tensor>> results;
  for (double scale : {1.0, 64.0}) {
    const auto params = small_model();
    const auto chain = build_optimizer(params, config());
    for (int t = 0; t < 3; ++t) {
      set_gradients(params, t, t == 1 ? scale : 1.0);
      EXPECT_LT(chain->step().clip_coefficient, 1.0);
    }
    results.push_back(copies(params));
  }
  for (size_t i = 0; i < results[0].size(); ++i)
    EXPECT_LT(max_difference(results[0][i], results[1][i]), 2e-5) << i;
}

TEST(ChainedOptimizer, GradientsAreReadOnly) {
  for (auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto params = small_model(dtype);
    const auto chain = build_optimizer(params, config());
    set_gradients(params, 0, 5.0);
    std::vector<at::Tensor> kept;
    for (const auto& param : params) kept.push_back(param.tensor.grad().clone());
    EXPECT_LT(chain->step().clip_coefficient, 1.0);
    for (size_t i = 0; i < params.size(); ++i)
      EXPECT_TRUE(same_bytes(params[i].tensor.grad(), kept[i])) << params[i].spec.name;
    chain->zero_grad();
    for (const auto& param : params) EXPECT_FALSE(param.tensor.grad().defined());
  }
}

TEST(ChainedOptimizer, ANonFiniteGradientTouchesNothing) {
  for (auto dtype : {at::kFloat, at::kBFloat16})
    for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()})
      for (size_t at : {size_t{0}, size_t{3}}) {  // an embedding of AdamW's, a matrix of Muon's
        const auto params = small_model(dtype);
        const auto chain = build_optimizer(params, config());
        for (int t = 0; t < 2; ++t) {
          set_gradients(params, t);
          chain->step();
        }
        const auto weights = copies(params);
        std::map<std::string, at::Tensor> state;
        for (const auto& [key, tensor] : chain->state()) state[key] = tensor.clone();
        set_gradients(params, 2);
        params[at].tensor.grad().view(-1)[7] = bad;
        const StepResult result = chain->step();
        EXPECT_TRUE(result.skipped);
        EXPECT_FALSE(std::isfinite(result.grad_norm));
        EXPECT_EQ(result.ns_calls, 0);
        EXPECT_EQ(result.clip_coefficient, 0.0);
        for (size_t i = 0; i < params.size(); ++i)
          EXPECT_TRUE(same_bytes(params[i].tensor, weights[i]));
        for (const auto& [key, tensor] : chain->state())
          EXPECT_TRUE(same_bytes(tensor, state.at(key))) << key;
      }
}

TEST(ChainedOptimizer, HugeFiniteGradientsAreClippedNotSkipped) {
  const auto params = small_model();
  const auto chain = build_optimizer(params, config());
  set_gradients(params, 0, 1e30);
  const StepResult result = chain->step();
  EXPECT_FALSE(result.skipped);
  EXPECT_GT(result.grad_norm, 1e30);
  for (const auto& param : params) EXPECT_TRUE(param.tensor.isfinite().all().item<bool>());
}

TEST(ChainedOptimizer, MissingAndZeroGradients) {
  const auto params = small_model();
  const auto chain = build_optimizer(params, config());
  const auto before = copies(params);
  EXPECT_EQ(chain->step().ns_calls, 0);  // none at all: nothing moves
  EXPECT_TRUE(same_bytes(params[1].tensor, before[1]));
  params[3].tensor.mutable_grad() = random_tensor({12, 24}, "g");
  EXPECT_EQ(chain->step().ns_calls, 1);
  EXPECT_TRUE(same_bytes(params[1].tensor, before[1]));
  EXPECT_FALSE(same_bytes(params[3].tensor, before[3]));
  EXPECT_EQ(chain->state_bytes(), 4 * 288);
}

TEST(ChainedOptimizer, StateBytesAreTheFormula) {
  for (auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto params = small_model(dtype);
    const auto muon = build_optimizer(params, config());
    OptimizerConfig adam_config = config();
    adam_config.optimizer = "adam";
    const auto adam = build_optimizer(params, adam_config);
    set_gradients(params, 0);
    muon->step();
    adam->step();
    const int64_t body = 192 + 288 + 288, rest = 268;
    EXPECT_EQ(muon->state_bytes(), 4 * body + 8 * rest);
    EXPECT_EQ(adam->state_bytes(), 8 * (body + rest));
    EXPECT_EQ(muon->state_bytes_by_optimizer().at("muon"), 4 * body);
    EXPECT_EQ(muon->master_bytes(), dtype == at::kBFloat16 ? 4 * (body + rest) : 0);
    EXPECT_EQ(adam->param_groups().size(), 2u);
    EXPECT_EQ(adam->child("muon"), nullptr);
  }
}

// bf16 parameters equal fp32 training on the same gradients, rounded once per step.
TEST(ChainedOptimizer, Bf16ParametersFollowTheirFp32Masters) {
  const auto narrow = small_model(at::kBFloat16);
  auto wide = small_model();
  for (size_t i = 0; i < wide.size(); ++i)
    wide[i].tensor = narrow[i].tensor.detach().to(at::kFloat).set_requires_grad(true);
  const auto a = build_optimizer(narrow, config()), b = build_optimizer(wide, config());
  for (int t = 0; t < 3; ++t) {
    set_gradients(narrow, t);
    for (size_t i = 0; i < wide.size(); ++i)
      wide[i].tensor.mutable_grad() = narrow[i].tensor.grad().to(at::kFloat);
    a->step();
    b->step();
    for (size_t i = 0; i < wide.size(); ++i)
      EXPECT_TRUE(same_bytes(narrow[i].tensor, wide[i].tensor.detach().to(at::kBFloat16)));
  }
}

TEST(ChainedOptimizer, SeparateAdamRates) {
  OptimizerConfig c = config();
  c.adam_lr = 0.0;
  c.adam_weight_decay = 0.0;
  const auto params = small_model();
  const auto chain = build_optimizer(params, c);
  const auto before = copies(params);
  set_gradients(params, 0);
  chain->step();
  EXPECT_TRUE(same_bytes(params[0].tensor, before[0]));
  EXPECT_FALSE(same_bytes(params[1].tensor, before[1]));
  EXPECT_EQ(chain->param_groups()[1].lr(), 0.0);
}

TEST(ChainedOptimizer, WithoutSplitAFusedMatrixIsOne) {
  OptimizerConfig c = config();
  c.muon_split_qkv = false;
  c.decay_vectors = true;
  c.measure_update_rms = false;
  const auto params = small_model();
  const auto chain = build_optimizer(params, c);
  set_gradients(params, 0);
  const StepResult result = chain->step();
  EXPECT_EQ(result.ns_calls, 1 + 1 + 3);
  EXPECT_TRUE(result.update_rms.empty());
  EXPECT_EQ(chain->param_groups().size(), 2u);  // vectors decay with the rest
}

// A step that leaves a matrix of Muon's as it is must not pass for one.
TEST(ChainedOptimizer, CountsTheMatricesThatWereOrthogonalized) {
  ChainedOptimizer::Parts parts;
  parts.params = {named("w", ParamRole::kMatrix, {4, 6})};
  const at::Tensor weight = parts.params[0].tensor;
  parts.routes = {route(parts.params[0].spec)};
  // as if half of it had been forgotten
  parts.pieces = {{.param = 0, .begin = 0, .end = 24, .master = weight, .matrices = 2}};
  parts.children.push_back({"muon", std::make_unique<Muon>(std::vector<at::Tensor>{weight})});
  ChainedOptimizer chain(std::move(parts));
  EXPECT_EQ(chain.step().ns_calls, 0);
  chain.child("muon")->param_groups()[0].params()[0].mutable_grad() = random_tensor({4, 6}, "g");
  EXPECT_THROW(chain.step(), Error);
}

// Upstream's clamp of the norm makes tiny gradients vanish; ours keeps their direction.
TEST(ChainedOptimizer, TinyGradientsMoveMuonUnlessTheNormIsClamped) {
  for (bool clamped : {false, true}) {
    OptimizerConfig c = config();
    if (clamped) c.muon_ns_eps = 1e-7;
    const auto params = small_model();
    const auto chain = build_optimizer(params, c);
    set_gradients(params, 0, 1e-20);
    const double rms = chain->step().update_rms.at("muon");
    EXPECT_NEAR(rms, clamped ? 0.0 : 0.2, clamped ? 1e-6 : 0.06);
  }
}

TEST(ChainedOptimizer, SameBytesOnOneAndTwoThreads) {
  const int before = at::get_num_threads();
  std::vector<std::vector<at::Tensor>> results;
  for (int threads : {1, 2}) {
    at::set_num_threads(threads);
    const auto params = small_model();
    const auto chain = build_optimizer(params, config());
    for (int t = 0; t < 3; ++t) {
      set_gradients(params, t);
      chain->step();
    }
    results.push_back(copies(params));
  }
  at::set_num_threads(before);
  for (size_t i = 0; i < results[0].size(); ++i)
    EXPECT_TRUE(same_bytes(results[0][i], results[1][i])) << i;
}

}  // namespace
}  // namespace muoncore::optim
