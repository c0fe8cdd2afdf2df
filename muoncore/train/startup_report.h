// What a run says about itself before the first step: model, optimizers with their parameters and
// the reason for each, how ranks share them, memory by category (of the rank that holds most).
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "muoncore/models/causal_lm.h"
#include "muoncore/parallel/wrap.h"

namespace muoncore::train {

struct StartupFacts {
  std::string command;  // "grpo", "sft"
  std::string model_source;
  std::string run_dir;
  c10::Device device{c10::DeviceType::CPU};
  int threads = 1;  // of each rank
  int64_t ranks = 1;
  bool with_reference = false;
  int64_t total_steps = 0;
};

// The report as text of several lines.
std::string startup_report(const StartupFacts& facts, const models::CausalLM& model,
                           const parallel::WrappedModel& wrapped);

// The same facts, for resolved.json.
nlohmann::json startup_json(const StartupFacts& facts, const models::CausalLM& model,
                            const parallel::WrappedModel& wrapped);

}  // namespace muoncore::train
