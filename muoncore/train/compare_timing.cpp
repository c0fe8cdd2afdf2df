#include "muoncore/train/compare_timing.h"

#include "muoncore/core/check.h"

namespace muoncore::train {

std::vector<ArmTimes> time_in_turns(const std::vector<TimedArm>& arms, int64_t warm_up,
                                    int64_t steps, const std::function<void(int64_t)>& on_round) {
  std::vector<ArmTimes> all(arms.size());
  for (int64_t round = -warm_up; round < steps; ++round) {
    for (size_t i = 0; i < arms.size(); ++i) {
      size_t arm = round % 2 == 0 ? i : arms.size() - 1 - i;
      StepTimes times = arms[arm].step();
      check(times.optimizer_step > 0 && times.update > 0,
            "timing of arm {}: a step was skipped (no gradient, or one that is not finite)",
            arms[arm].name);
      if (round < 0) continue;
      all[arm].optimizer_step.push_back(times.optimizer_step);
      all[arm].update.push_back(times.update);
    }
    on_round(round);
  }
  return all;
}

}  // namespace muoncore::train
