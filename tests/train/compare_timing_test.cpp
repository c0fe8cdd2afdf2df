#include "muoncore/train/compare_timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "muoncore/core/check.h"
#include "muoncore/train/report_statistics.h"

namespace muoncore::train {
namespace {

using testing::ElementsAre;

// Every step of any arm takes one second longer than the step before it, whichever arm that was.
struct DriftingMachine {
  double now = 0;
  std::string order;

  TimedArm arm(const std::string& name, double extra) {
    auto step = [this, name, extra] {
      now += 1;
      order += name;
      return StepTimes{.optimizer_step = now + extra, .update = 10 * now};
    };
    return {.name = name, .step = step};
  }
};

TEST(TimeInTurns, AlternatesAndTurnsTheOrderAround) {
  DriftingMachine machine;
  std::vector<int64_t> rounds;
  std::vector<ArmTimes> times = time_in_turns({machine.arm("a", 0), machine.arm("b", 0)}, 2, 4,
                                              [&](int64_t round) { rounds.push_back(round); });
  EXPECT_EQ(machine.order, "abbaabbaabba");
  EXPECT_THAT(rounds, ElementsAre(-2, -1, 0, 1, 2, 3));
  EXPECT_THAT(times[0].optimizer_step,
              ElementsAre(5, 8, 9, 12));  // the 4 steps of warm-up do not count
  EXPECT_THAT(times[1].optimizer_step, ElementsAre(6, 7, 10, 11));
  EXPECT_THAT(times[1].update, ElementsAre(60, 70, 100, 110));
}

TEST(TimeInTurns, ASteadyDriftLeavesNoGapBetweenEqualArms) {
  DriftingMachine machine;
  std::vector<ArmTimes> times =
      time_in_turns({machine.arm("a", 0), machine.arm("b", 0)}, 0, 20, [](int64_t) {});
  Gap gap = judge(times[0].optimizer_step, times[1].optimizer_step, Pairing::kTimedSteps);
  EXPECT_EQ(gap.gap, 0);
  EXPECT_EQ(gap.verdict, Verdict::kLevel);
}

TEST(TimeInTurns, ThreeArms) {
  DriftingMachine machine;
  auto times = time_in_turns({machine.arm("a", 0), machine.arm("b", 0), machine.arm("c", 0)}, 0, 2,
                             [](int64_t) {});
  EXPECT_EQ(machine.order, "abccba");
  EXPECT_EQ(times.size(), 3u);
}

TEST(TimeInTurns, ASkippedStepIsAnError) {
  TimedArm skipping{.name = "muon",
                    .step = [] { return StepTimes{.optimizer_step = 0, .update = 1}; }};
  EXPECT_THROW(time_in_turns({skipping}, 1, 1, [](int64_t) {}), Error);
}

}  // namespace
}  // namespace muoncore::train
