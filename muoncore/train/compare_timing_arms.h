// The timed arms of a comparison, each built from its configuration.
#pragma once

#include <string>

#include "muoncore/train/compare_timing.h"
#include "muoncore/train/config.h"

namespace muoncore::train {

TimedArm timed_grpo_arm(const std::string& name, const Config& config);
TimedArm timed_sft_arm(const std::string& name, const Config& config);

}  // namespace muoncore::train
