#include "muoncore/rl/kl_penalty.h"

#include <gtest/gtest.h>

#include <cmath>

#include "muoncore/core/check.h"
#include "muoncore/rl/loss_aggregation.h"
#include "tests/rl/golden.h"

namespace muoncore::rl {
namespace {

struct Expected {
  const char* name;
  double value, grad;
};

class KlGolden : public testing::TestWithParam<Expected> {};

TEST_P(KlGolden, TokenMeanAndSumOfGradients) {
  const Expected& e = GetParam();
  auto b = golden::batch();
  at::Tensor kl = kl_penalty(b.log_probs, b.ref_log_probs, parse_kl_penalty(e.name));
  at::Tensor loss = aggregate_loss(kl, b.mask, LossAggMode::kTokenMean, {23, 8, 4});
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), e.value, 6e-11);
  EXPECT_NEAR(b.log_probs.grad().sum().item<double>(), e.grad, 6e-11);
}

constexpr double kK1 = -0.0369565217, kAbs = 0.2239130435, kK2 = 0.0316847826, kK3 = 0.0320443446;
constexpr double kGradK2 = -.0369565217;
INSTANTIATE_TEST_SUITE_P(
    All, KlGolden,
    testing::Values(Expected{"k1", kK1, 1.0}, Expected{"kl", kK1, 1.0},
                    Expected{"abs", kAbs, -.2173913043}, Expected{"k2", kK2, kGradK2},
                    Expected{"mse", kK2, kGradK2}, Expected{"k3", kK3, -.0690008663},
                    Expected{"low_var_kl", kK3, -.0690008663}, Expected{"k1+", kK1, kGradK2},
                    Expected{"kl+", kK1, kGradK2}, Expected{"abs+", kAbs, kGradK2},
                    Expected{"k2+", kK2, kGradK2}, Expected{"k3+", kK3, kGradK2},
                    Expected{"low_var_kl+", kK3, kGradK2}));

TEST(KlPenalty, K3IsClampedOnBothWays) {
  at::Tensor x = at::tensor({-60.0, 3.0, 0.0}, at::kDouble), ref = at::zeros({3}, at::kDouble);
  at::Tensor k3 = kl_penalty(x, ref, parse_kl_penalty("k3"));
  EXPECT_DOUBLE_EQ(k3[0].item<double>(), 10.0);  // e^20 - 21, clamped
  EXPECT_NEAR(k3[1].item<double>(), std::exp(-3.0) + 2.0, 1e-14);
  EXPECT_EQ(k3[2].item<double>(), 0.0);
}

TEST(KlPenalty, UnknownNamesAreRefused) {
  for (const char* name : {"full", "k4", "", "+", "k3++", "K3"})
    EXPECT_THROW(parse_kl_penalty(name), Error) << name;
  for (const auto& name : kl_penalty_names()) EXPECT_NO_THROW(parse_kl_penalty(name));
}

TEST(KlInReward, ScoresLoseTheSumAndTheMeanIsOverRowsMeans) {
  at::Tensor old = torch::tensor({{-1.0, -2.0, 99.0}, {-3.0, 99.0, 99.0}}, at::kDouble);
  at::Tensor ref = torch::tensor({{-1.5, -2.25, 0.0}, {-2.0, 0.0, 0.0}}, at::kDouble);
  at::Tensor mask = torch::tensor({{1.0, 1.0, 0.0}, {1.0, 0.0, 0.0}}, at::kDouble);
  KlReward r = kl_in_reward({1.0, 0.0}, old, ref, mask, parse_kl_penalty("kl"), 0.1);
  EXPECT_NEAR(r.scores[0], 1.0 - 0.1 * 0.75, 1e-12);
  EXPECT_NEAR(r.scores[1], 0.1, 1e-12);
  EXPECT_NEAR(r.mean_kl, (0.375 - 1.0) / 2, 1e-7);
}

}  // namespace
}  // namespace muoncore::rl
