#include "muoncore/rl/advantage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "muoncore/core/check.h"
#include "tests/rl/golden.h"

namespace muoncore::rl {
namespace {

TEST(Advantage, GoldenWithStandardDeviation) {
  auto a = grpo_advantages(golden::kRewards, golden::kGroups);
  std::vector<double> expected = {.8660239, -.8660239, -.8660239, .8660239,
                                  .499999,  .499999,   .499999,   -1.499997};
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], expected[i], 5e-8) << i;
}

TEST(Advantage, GoldenWithoutStandardDeviation) {
  EXPECT_EQ(grpo_advantages(golden::kRewards, golden::kGroups, false),
            (std::vector<double>{.5, -.5, -.5, .5, .25, .25, .25, -.75}));
}

TEST(Advantage, ConstantGroupIsExactlyZeroThoughItsMeanRounds) {
  auto a = grpo_advantages({0.1, 0.1, 0.1, 7.0, 7.0}, {3, 3, 3, 9, 9});
  for (double x : a) EXPECT_EQ(x, 0.0);
}

TEST(Advantage, GroupOfOneIsTheScoreOverOnePlusEpsilon) {
  EXPECT_DOUBLE_EQ(grpo_advantages({2.0}, {5})[0], 2.0 / (1.0 + 1e-6));
  EXPECT_DOUBLE_EQ(grpo_advantages({2.0}, {5}, false)[0], 2.0);
}

TEST(Advantage, GroupsNeedNotBeAdjacent) {
  auto together = grpo_advantages({1, 0, 3, 5}, {0, 0, 1, 1});
  auto mixed = grpo_advantages({1, 3, 0, 5}, {7, -2, 7, -2});
  EXPECT_EQ(mixed, (std::vector<double>{together[0], together[2], together[1], together[3]}));
}

TEST(Advantage, TinySpreadIsDampedByEpsilonAndEmptyIsEmpty) {
  auto a = grpo_advantages({1.0, 1.0 + 1e-9}, {0, 0});  // std 7e-10 under 1e-6
  EXPECT_NEAR(a[1], 5e-10 / (7.0710678e-10 + 1e-6), 1e-9);
  EXPECT_TRUE(grpo_advantages({}, {}).empty());
}

TEST(Advantage, RefusesWhatItCannotJudge) {
  EXPECT_THROW(grpo_advantages({1.0}, {}), Error);
  EXPECT_THROW(grpo_advantages({1.0, std::nan("")}, {0, 0}), Error);
  EXPECT_THROW(grpo_advantages({std::numeric_limits<double>::infinity(), 0.0}, {0, 0}), Error);
}

TEST(KlController, FixedStaysAdaptiveSteersWithinItsClip) {
  KlController fixed = KlController::fixed(0.001);
  fixed.update(100.0, 512);
  EXPECT_EQ(fixed.coef(), 0.001);

  KlController c = KlController::adaptive(0.1, /*target_kl=*/0.5, /*horizon=*/1000.0);
  c.update(0.55, 100);  // error 0.1
  EXPECT_NEAR(c.coef(), 0.1 * (1 + 0.1 * 0.1), 1e-15);
  c.update(50.0, 100);  // clipped to 0.2
  EXPECT_NEAR(c.coef(), 0.101 * 1.02, 1e-15);
  c.update(0.0, 100);  // clipped to -0.2
  EXPECT_NEAR(c.coef(), 0.101 * 1.02 * 0.98, 1e-15);
  c.restore(0.25);
  EXPECT_EQ(c.coef(), 0.25);
  EXPECT_THROW(KlController::adaptive(0.1, 0.0, 1000.0), Error);
  EXPECT_THROW(KlController::adaptive(0.1, 0.5, -1.0), Error);
}

}  // namespace
}  // namespace muoncore::rl
