#include "muoncore/rl/policy_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"
#include "muoncore/rl/advantage.h"
#include "muoncore/rl/kl_penalty.h"
#include "muoncore/rl/log_probs.h"
#include "tests/rl/golden.h"

namespace muoncore::rl {
namespace {

const LossDenominators kWhole{.global_tokens = 23, .global_batch_size = 8, .loss_scale_factor = 4};

at::Tensor golden_advantages() {
  return at::tensor(grpo_advantages(golden::kRewards, golden::kGroups), at::kDouble);
}

PolicyLossOptions dapo(LossAggMode mode) {
  return {
      .clip_ratio_low = 0.2, .clip_ratio_high = 0.28, .clip_ratio_c = 3.0, .loss_agg_mode = mode};
}

struct Expected {
  const char* mode;
  double loss, grad, abs_grad;
};

class VanillaGolden : public testing::TestWithParam<Expected> {};

TEST_P(VanillaGolden, LossAndGradients) {
  const Expected& e = GetParam();
  auto b = golden::batch();
  auto out = policy_loss(b.log_probs, b.old_log_probs, golden_advantages(), b.mask,
                         dapo(parse_loss_agg_mode(e.mode)), kWhole);
  out.loss.backward();
  EXPECT_NEAR(out.loss.item<double>(), e.loss, 6e-11);
  EXPECT_NEAR(b.log_probs.grad().sum().item<double>(), e.grad, 6e-11);
  EXPECT_NEAR(b.log_probs.grad().abs().sum().item<double>(), e.abs_grad, 6e-11);
  EXPECT_NEAR(out.metrics.pg_clipfrac(), .13043478, 5e-9);
  EXPECT_NEAR(out.metrics.ppo_kl(), .03478261, 5e-9);
  EXPECT_EQ(out.metrics.pg_clipfrac_lower(), 0.0);
}

INSTANTIATE_TEST_SUITE_P(
    AllModes, VanillaGolden,
    testing::Values(Expected{"token-mean", -0.1068404303, -0.0813109382, 0.7152197062},
                    Expected{"token-sum", -2.4573298959, -1.8701515789, 16.4500532437},
                    Expected{"seq-mean-token-sum", -0.3071662370, -0.2337689474, 2.0562566555},
                    Expected{"seq-mean-token-mean", 0.0580995877, 0.0547983126, 0.7331913427},
                    Expected{"seq-mean-token-sum-norm", -0.0767915592, -0.0584422368,
                             0.5140641639}));

TEST(PolicyLoss, GspoGolden) {
  auto b = golden::batch();
  PolicyLossOptions o{.loss_mode = LossMode::kGspo,
                      .clip_ratio_low = 0.05,
                      .clip_ratio_high = 0.06,
                      .loss_agg_mode = LossAggMode::kSeqMeanTokenMean};
  auto out = policy_loss(b.log_probs, b.old_log_probs, golden_advantages(), b.mask, o, kWhole);
  out.loss.backward();
  EXPECT_NEAR(out.loss.item<double>(), 0.0592709191, 6e-11);
  EXPECT_NEAR(b.log_probs.grad().sum().item<double>(), 0.0226804484, 6e-11);
  EXPECT_NEAR(b.log_probs.grad().abs().sum().item<double>(), 0.6310339224, 6e-11);
  EXPECT_NEAR(out.metrics.pg_clipfrac(), .26086957, 5e-9);
}

TEST(PolicyLoss, CispoGolden) {
  auto b = golden::batch();
  PolicyLossOptions o = dapo(LossAggMode::kTokenMean);
  o.loss_mode = LossMode::kCispo;
  auto out = policy_loss(b.log_probs, b.old_log_probs, golden_advantages(), b.mask, o, kWhole);
  out.loss.backward();
  EXPECT_NEAR(out.loss.item<double>(), 0.0706485648, 6e-11);
  EXPECT_NEAR(b.log_probs.grad().abs().sum().item<double>(), 0.7979581149, 6e-11);
}

at::Tensor one(double value) { return at::full({1, 1}, value, at::kDouble); }

PolicyLoss single(double log_ratio, double advantage, const PolicyLossOptions& o) {
  return policy_loss(one(-1.0 + log_ratio).set_requires_grad(true), one(-1.0), one(advantage),
                     one(1.0), o, {1, 1, 1});
}

TEST(PolicyLoss, DualClipHoldsNegativeAdvantagesOnly) {
  PolicyLossOptions o = dapo(LossAggMode::kTokenMean);
  auto held = single(std::log(7.0), -2.0, o);
  EXPECT_NEAR(held.loss.item<double>(), 6.0, 1e-12);  // -A c, not -A ratio = 14
  EXPECT_EQ(held.metrics.clipped_lower, 1.0);
  auto free = single(std::log(2.5), -2.0, o);
  EXPECT_NEAR(free.loss.item<double>(), 5.0, 1e-12);
  EXPECT_EQ(free.metrics.clipped_lower, 0.0);
  auto positive = single(std::log(7.0), 2.0, o);
  EXPECT_NEAR(positive.loss.item<double>(), -2.0 * 1.28, 1e-12);
  EXPECT_EQ(positive.metrics.clipped, 1.0);
  EXPECT_EQ(positive.metrics.clipped_lower, 0.0);
}

TEST(PolicyLoss, LogRatioIsClampedSoThatNothingOverflows) {
  PolicyLossOptions o = dapo(LossAggMode::kTokenMean);
  o.clip_ratio_c = 1e12;
  EXPECT_NEAR(single(1000.0, -1.0, o).loss.item<double>(), std::exp(20.0), 1e-3);
  EXPECT_NEAR(single(1000.0, -1.0, o).metrics.ppo_kl(), -20.0, 1e-6);
  o.loss_mode = LossMode::kGspo;
  EXPECT_NEAR(single(1000.0, -1.0, o).loss.item<double>(), std::exp(10.0), 1e-6);
}

TEST(PolicyLoss, OnPolicyGradientIsAdvantageOverTokens) {
  auto b = golden::batch();
  at::Tensor x = b.old_log_probs.clone().set_requires_grad(true);
  auto out = policy_loss(x, b.old_log_probs, golden_advantages(), b.mask,
                         dapo(LossAggMode::kTokenMean), kWhole);
  out.loss.backward();
  at::Tensor expected = -golden_advantages().unsqueeze(1) * b.mask / 23.0;
  EXPECT_TRUE(at::allclose(x.grad(), expected, 0, 1e-15));
}

class MicroBatches : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

// 1 against 4 micro-batches of unequal lengths, each cut to its own longest row, in fp32.
TEST_P(MicroBatches, AddUpToTheWhole) {
  auto [agg, mode] = GetParam();
  PolicyLossOptions o = dapo(parse_loss_agg_mode(agg));
  o.loss_mode = parse_loss_mode(mode);
  auto b = golden::batch();
  at::Tensor whole_leaf = b.log_probs.detach().to(at::kFloat).set_requires_grad(true);
  at::Tensor part_leaf = whole_leaf.detach().clone().set_requires_grad(true);
  at::Tensor adv = golden_advantages();
  auto whole = policy_loss(whole_leaf, b.old_log_probs, adv, b.mask, o, kWhole);
  whole.loss.backward();

  PolicyMetrics metrics;
  double loss = 0;
  const int64_t starts[] = {0, 1, 4, 6, 8};
  for (int m = 0; m < 4; ++m) {
    int64_t start = starts[m], n = starts[m + 1] - start;
    int64_t width = b.mask.narrow(0, start, n).sum(1).max().item<int64_t>();
    auto cut = [&](const at::Tensor& x) { return x.narrow(0, start, n).narrow(1, 0, width); };
    auto part = policy_loss(cut(part_leaf), cut(b.old_log_probs), adv.narrow(0, start, n),
                            cut(b.mask), o, kWhole);
    part.loss.backward();
    loss += part.loss.item<double>();
    metrics += part.metrics;
  }
  EXPECT_NEAR(loss, whole.loss.item<double>(), 1e-5);
  EXPECT_LT((part_leaf.grad() - whole_leaf.grad()).abs().max().item<double>(), 1e-6);
  EXPECT_NEAR(metrics.pg_clipfrac(), whole.metrics.pg_clipfrac(), 1e-12);
  EXPECT_NEAR(metrics.ppo_kl(), whole.metrics.ppo_kl(), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(AllModes, MicroBatches,
                         testing::Combine(testing::ValuesIn(loss_agg_mode_names()),
                                          testing::ValuesIn(loss_mode_names())));

// Loss as an actor makes it: policy gradient, entropy bonus and KL, from logits [rows, width, V].
at::Tensor actor_loss(const at::Tensor& logits, const golden::Batch& b, int64_t start, int64_t rows,
                      LossAggMode mode) {
  int64_t width = b.mask.narrow(0, start, rows).sum(1).max().item<int64_t>();
  auto cut = [&](const at::Tensor& x) { return x.narrow(0, start, rows).narrow(1, 0, width); };
  at::Tensor ids = at::arange(golden::kRows * golden::kWidth, at::kLong)
                       .view({golden::kRows, golden::kWidth})
                       .remainder(logits.size(-1));
  auto pass = token_log_probs(cut(logits), cut(ids), /*temperature=*/0.9, /*with_entropy=*/true);
  at::Tensor mask = cut(b.mask);
  at::Tensor pg = policy_loss(pass.log_probs, cut(b.old_log_probs) - 2.0,
                              golden_advantages().narrow(0, start, rows), mask, dapo(mode), kWhole)
                      .loss;
  at::Tensor kl = kl_penalty(pass.log_probs, cut(b.ref_log_probs) - 2.0, parse_kl_penalty("k3+"));
  return pg - 0.1 * aggregate_loss(pass.entropy, mask, mode, kWhole) +
         0.1 * aggregate_loss(kl, mask, mode, kWhole);
}

TEST(PolicyLoss, MicroBatchesAddUpFromTheLogitsOn) {
  auto b = golden::batch();
  at::Tensor whole = at::empty({golden::kRows, golden::kWidth, 13});
  CounterRng rng({hash_name("logits")});
  for (int64_t i = 0; i < whole.numel(); ++i)
    whole.mutable_data_ptr<float>()[i] = static_cast<float>(rng.normal(static_cast<uint64_t>(i)));
  for (const auto& name : loss_agg_mode_names()) {
    LossAggMode mode = parse_loss_agg_mode(name);
    at::Tensor one_leaf = whole.clone().set_requires_grad(true);
    at::Tensor four_leaf = whole.clone().set_requires_grad(true);
    at::Tensor at_once = actor_loss(one_leaf, b, 0, golden::kRows, mode);
    at_once.backward();
    double sum = 0;
    for (auto [start, rows] : {std::pair{0, 1}, {1, 3}, {4, 1}, {5, 3}}) {
      at::Tensor part = actor_loss(four_leaf, b, start, rows, mode);
      part.backward();
      sum += part.item<double>();
    }
    EXPECT_NEAR(sum, at_once.item<double>(), 1e-5) << name;
    EXPECT_LT((one_leaf.grad() - four_leaf.grad()).abs().max().item<double>(), 1e-6) << name;
    EXPECT_GT(one_leaf.grad().abs().max().item<double>(), 1e-3) << name;
  }
}

TEST(PolicyLoss, NothingUnderTheMaskCounts) {
  double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& mode : loss_mode_names()) {
    auto b = golden::batch();
    at::Tensor padding = b.mask.eq(0);
    at::Tensor x = b.log_probs.detach().masked_fill(padding, nan).set_requires_grad(true);
    PolicyLossOptions o = dapo(LossAggMode::kSeqMeanTokenMean);
    o.loss_mode = parse_loss_mode(mode);
    auto clean = policy_loss(b.log_probs, b.old_log_probs, golden_advantages(), b.mask, o, kWhole);
    auto dirty = policy_loss(x, b.old_log_probs.masked_fill(padding, nan), golden_advantages(),
                             b.mask, o, kWhole);
    dirty.loss.backward();
    EXPECT_EQ(dirty.loss.item<double>(), clean.loss.item<double>()) << mode;
    EXPECT_EQ(dirty.metrics.ppo_kl(), clean.metrics.ppo_kl()) << mode;
    EXPECT_EQ(x.grad().masked_select(padding).abs().sum().item<double>(), 0.0) << mode;
  }
}

TEST(PolicyLoss, RowsOfZeroAdvantageStillCountInTheDenominator) {
  at::Tensor x = at::zeros({2, 2}, at::kDouble), mask = at::ones({2, 2}, at::kDouble);
  at::Tensor adv = at::tensor({1.0, 0.0}, at::kDouble);
  auto out = policy_loss(x, x, adv, mask, dapo(LossAggMode::kTokenMean), {4, 2, 2});
  EXPECT_DOUBLE_EQ(out.loss.item<double>(), -0.5);
}

TEST(PolicyLoss, AnEmptyRowIsZeroNotNan) {
  at::Tensor x = at::zeros({1, 3}, at::kDouble).set_requires_grad(true);
  for (const auto& mode : loss_mode_names()) {
    PolicyLossOptions o = dapo(LossAggMode::kSeqMeanTokenMean);
    o.loss_mode = parse_loss_mode(mode);
    auto out =
        policy_loss(x, x.detach(), at::ones({1}, at::kDouble), at::zeros({1, 3}), o, {1, 1, 1});
    EXPECT_EQ(out.loss.item<double>(), 0.0);
    EXPECT_EQ(out.metrics.ppo_kl(), 0.0);
  }
}

TEST(PolicyLoss, Refusals) {
  at::Tensor x = at::zeros({2, 3}), a = at::zeros({2});
  LossDenominators d{6, 2, 3};
  PolicyLossOptions o;
  EXPECT_NO_THROW(policy_loss(x, x, a, x, o, d));
  EXPECT_THROW(policy_loss(x, x.narrow(1, 0, 2), a, x, o, d), Error);
  EXPECT_THROW(policy_loss(x, x, at::zeros({3}), x, o, d), Error);
  EXPECT_THROW(policy_loss(x, x, a, x, o, {0, 2, 3}), Error);
  o.clip_ratio_c = 1.0;
  EXPECT_THROW(policy_loss(x, x, a, x, o, d), Error);
  o = {};
  o.clip_ratio_low = -0.1;
  EXPECT_THROW(policy_loss(x, x, a, x, o, d), Error);
  o = dapo(LossAggMode::kSeqMeanTokenSumNorm);
  EXPECT_THROW(policy_loss(x, x, a, x, o, {6, 2, 0}), Error);
  EXPECT_THROW(parse_loss_agg_mode("token_mean"), Error);
  EXPECT_THROW(parse_loss_mode("ppo"), Error);
}

}  // namespace
}  // namespace muoncore::rl
