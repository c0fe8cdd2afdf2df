// Times the arms of a comparison against each other in one process: their steps alternate, so that
// whatever disturbs the machine meets all of them, and the differences are taken between neighbours
// in time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "muoncore/train/compare_plan.h"
#include "muoncore/train/ranks.h"

namespace muoncore::train {

struct StepTimes {
  double optimizer_step = 0.0;  // seconds
  double update = 0.0;          // forward, backward and optimizer step
};

// One arm, built and ready to take steps.
struct TimedArm {
  std::string name;
  // does the update of a training step; a phase that did not happen took 0 s
  std::function<StepTimes()> step;
};

struct ArmTimes {
  std::vector<double> optimizer_step;  // one per timed step
  std::vector<double> update;
};

// `warm_up` steps of each arm that do not count, then `steps` rounds of one step of every arm; odd
// rounds go through the arms backwards, so that none always comes first. `on_round` is told each
// round that is done (from -warm_up on). One entry per arm. Throws Error when a step has no time:
// one that was skipped cannot be compared.
std::vector<ArmTimes> time_in_turns(const std::vector<TimedArm>& arms, int64_t warm_up,
                                    int64_t steps, const std::function<void(int64_t)>& on_round);

// Builds every arm of the plan from its configuration with the first seed and times
// plan.timing_steps rounds with plan.threads threads; collective over `ranks`, a step takes as long
// as it takes the slowest. grpo: update_actor on one recorded batch of
// the start's model. sft: the training steps themselves; in a round all arms have the same batch.
// The runs of the plan's starts must be done.
std::vector<ArmTimes> time_arms(const ComparePlan& plan, const Ranks& ranks);

}  // namespace muoncore::train
