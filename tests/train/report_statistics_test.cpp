// Known answers: worked by hand, or by scipy.stats where noted.
#include "muoncore/train/report_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "muoncore/core/check.h"

namespace muoncore::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Values = std::vector<double>;

TEST(Spread, MeanAndSampleDeviation) {
  Spread s = spread_of({2, 4, 9}, Pairing::kSeeds);
  EXPECT_DOUBLE_EQ(s.center, 5);
  EXPECT_DOUBLE_EQ(s.deviation, std::sqrt((9.0 + 1 + 16) / 2));
  EXPECT_EQ(s.min, 2);
  EXPECT_EQ(s.max, 9);
}

TEST(Spread, OneValueHasNone) {
  Spread s = spread_of({7.5}, Pairing::kSeeds);
  EXPECT_EQ(s.center, 7.5);
  EXPECT_EQ(s.deviation, 0);
}

TEST(Spread, EqualValuesHaveExactlyNone) {
  // The mean of three times 0.1 rounds to another number than 0.1.
  EXPECT_EQ(spread_of({0.1, 0.1, 0.1}, Pairing::kSeeds).deviation, 0);
}

TEST(Spread, TimedStepsAreRobustAgainstOneSlowStep) {
  // Median 3; distances 2 1 0 1 997; their median 1.
  Spread s = spread_of({1, 2, 3, 4, 1000}, Pairing::kTimedSteps);
  EXPECT_EQ(s.center, 3);
  EXPECT_DOUBLE_EQ(s.deviation, 1.4826);
  EXPECT_EQ(spread_of({1, 2, 4, 1000}, Pairing::kTimedSteps).center, 3);
}

TEST(Spread, RefusesNothing) {
  EXPECT_THROW(spread_of({}, Pairing::kSeeds), std::invalid_argument);
  EXPECT_THROW(judge({}, {}, Pairing::kSeeds), std::invalid_argument);
  EXPECT_THROW(judge({1, 2}, {1}, Pairing::kSeeds), std::invalid_argument);
}

TEST(NeededRatio, IsStudentsTForFewPairsAndTwoFromFour) {
  // scipy.stats.t.ppf(0.975, n - 1) / sqrt(n)
  EXPECT_NEAR(needed_ratio(2), 8.98465, 1e-4);
  EXPECT_NEAR(needed_ratio(3), 2.48415, 1e-4);
  EXPECT_EQ(needed_ratio(4), 2.0);  // 1.591 by Student
  EXPECT_EQ(needed_ratio(100), 2.0);
}

TEST(Judge, GapBeyondTheSpreadHolds) {
  Gap gap = judge({10, 11, 12}, {20, 21, 22.5}, Pairing::kSeeds);
  EXPECT_THAT(gap.differences, ElementsAre(10, 10, 10.5));
  EXPECT_NEAR(gap.gap, 30.5 / 3, 1e-12);
  EXPECT_NEAR(gap.relative, 30.5 / 33, 1e-12);
  // Deviations 1 and sqrt(1.58333); pooled sqrt((1 + 1.58333) / 2); of the differences 0.28868.
  EXPECT_NEAR(gap.spread, std::sqrt((1 + 19.0 / 12) / 2), 1e-12);
  EXPECT_NEAR(gap.ratio, gap.gap / gap.spread, 1e-12);
  EXPECT_EQ(gap.same_sign, 1);
  EXPECT_EQ(gap.verdict, Verdict::kHolds);
}

TEST(Judge, SpreadOfTheDifferencesCountsWhenItIsLarger) {
  // Each arm spreads by 1; the differences 2, 0.0, -2 + ... spread by more, since the arms run
  // against each other.
  Gap gap = judge({1, 2, 3}, {3, 2, 1}, Pairing::kSeeds);
  EXPECT_DOUBLE_EQ(gap.spread, 2);
  EXPECT_EQ(gap.gap, 0);
  EXPECT_EQ(gap.ratio, 0);
  EXPECT_EQ(gap.verdict, Verdict::kLevel);
}

TEST(Judge, JustBelowAndJustAboveTheThreshold) {
  // Three seeds, spread 1 in both arms and 0 in the differences: the threshold is a gap of 2.484.
  EXPECT_EQ(judge({0, 1, 2}, {2.48, 3.48, 4.48}, Pairing::kSeeds).verdict, Verdict::kLevel);
  EXPECT_EQ(judge({0, 1, 2}, {2.49, 3.49, 4.49}, Pairing::kSeeds).verdict, Verdict::kHolds);
  EXPECT_EQ(judge({2.49, 3.49, 4.49}, {0, 1, 2}, Pairing::kSeeds).verdict, Verdict::kHolds);
}

TEST(Judge, TwoSeedsNeedMuchMore) {
  EXPECT_EQ(judge({0, 1}, {5, 6}, Pairing::kSeeds).verdict, Verdict::kLevel);      // 7.07 spreads
  EXPECT_EQ(judge({0, 1}, {6.5, 7.5}, Pairing::kSeeds).verdict, Verdict::kHolds);  // 9.19
}

TEST(Judge, OneDisagreeingSeedIsEnoughForLevel) {
  Values first(9, 0.0), other(9, 1.0);
  EXPECT_EQ(judge(first, other, Pairing::kSeeds).verdict, Verdict::kHolds);
  other[4] = -0.01;
  Gap gap = judge(first, other, Pairing::kSeeds);
  EXPECT_GT(gap.ratio, gap.needed);
  EXPECT_EQ(gap.verdict, Verdict::kLevel);
}

TEST(Judge, ATieInEverySeedIsLevelAndAGapWithoutSpreadHolds) {
  Gap tie = judge({1, 1, 1}, {1, 1, 1}, Pairing::kSeeds);
  EXPECT_EQ(tie.verdict, Verdict::kLevel);
  EXPECT_EQ(tie.ratio, 0);
  Gap gap = judge({1, 1, 1}, {0.5, 0.5, 0.5}, Pairing::kSeeds);
  EXPECT_TRUE(std::isinf(gap.ratio));
  EXPECT_EQ(gap.verdict, Verdict::kHolds);
}

TEST(Judge, OneSeedGetsNoVerdictHoweverLargeTheGap) {
  Gap gap = judge({1}, {1000}, Pairing::kSeeds);
  EXPECT_EQ(gap.verdict, Verdict::kOneRepeat);
  EXPECT_EQ(words(gap.verdict, Pairing::kSeeds), "one seed: no verdict");
}

TEST(Judge, RelativeToZeroDoesNotExist) {
  EXPECT_TRUE(std::isnan(judge({0, 0}, {1, 1}, Pairing::kSeeds).relative));
}

TEST(Judge, ExactQuantities) {
  Gap gap = judge({6368256, 6368256, 6368256}, {3222528, 3222528, 3222528}, Pairing::kExact);
  EXPECT_EQ(gap.gap, -3145728);
  EXPECT_NEAR(gap.relative, -0.49397, 1e-5);
  EXPECT_EQ(words(gap.verdict, Pairing::kExact), "holds (exact)");
  EXPECT_EQ(judge({8}, {4}, Pairing::kExact).verdict, Verdict::kHolds);  // one seed is enough
  EXPECT_EQ(words(judge({8, 8}, {8, 8}, Pairing::kExact).verdict, Pairing::kExact),
            "equal (exact)");
  EXPECT_THROW(judge({8, 9}, {8, 8}, Pairing::kExact), Error);
  EXPECT_THROW(judge({8, 8}, {8, 9}, Pairing::kExact), Error);
}

TEST(Judge, TimedStepsLookAtTheDifferencesOfThePairs) {
  // The machine drifts by a factor of 5, and the pairs still show 1 ms of difference in each.
  Values first, other;
  for (int i = 0; i < 20; ++i) {
    first.push_back(10.0 + 2 * i);
    other.push_back(11.0 + 2 * i + (i % 2 ? 0.1 : -0.1));
  }
  Gap gap = judge(first, other, Pairing::kTimedSteps);
  EXPECT_NEAR(gap.gap, 1.0, 1e-9);
  EXPECT_NEAR(gap.spread, 0.14826, 1e-9);
  EXPECT_EQ(gap.verdict, Verdict::kHolds);
}

TEST(Judge, TimedStepsNeedNineOfTenPairs) {
  Values first(20, 10.0), other(20, 11.0);
  other[0] = other[1] = 9;
  EXPECT_EQ(judge(first, other, Pairing::kTimedSteps).verdict, Verdict::kHolds);  // 18 of 20
  other[2] = 9;
  EXPECT_EQ(judge(first, other, Pairing::kTimedSteps).verdict, Verdict::kLevel);
}

TEST(VerdictRule, SaysTheThresholdThatIsUsed) {
  EXPECT_THAT(verdict_rule(3), HasSubstr("2.48 times the spread"));
  EXPECT_THAT(verdict_rule(3), HasSubstr("for 3 seeds"));
  EXPECT_THAT(verdict_rule(1), HasSubstr("With one seed there is no spread"));
}

}  // namespace
}  // namespace muoncore::train
