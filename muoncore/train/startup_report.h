// What a run says about itself before the first step: model, optimizers with their parameters and
// the reason for each, memory by category.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "muoncore/models/causal_lm.h"
#include "muoncore/optim/chained.h"

namespace muoncore::train {

struct MemoryPlan {
  int64_t weights = 0;
  int64_t gradients = 0;        // as large as the weights, in their dtype
  int64_t masters = 0;          // fp32 copies of bf16 weights
  int64_t optimizer_state = 0;  // 4 bytes per element of Muon's (momentum), 8 per element of
                                // AdamW's (two moments)
  int64_t reference = 0;        // weights of the reference model
  int64_t total() const;
};
MemoryPlan plan_memory(const models::CausalLM& model, const optim::ChainedOptimizer& optimizer,
                       bool with_reference);

struct StartupFacts {
  std::string command;  // "grpo", "sft"
  std::string model_source;
  std::string run_dir;
  c10::Device device{c10::DeviceType::CPU};
  int threads = 1;
  bool with_reference = false;
  int64_t total_steps = 0;
};

// The report as text of several lines.
std::string startup_report(const StartupFacts& facts, const models::CausalLM& model,
                           const optim::ChainedOptimizer& optimizer);

// The same facts, for resolved.json.
nlohmann::json startup_json(const StartupFacts& facts, const models::CausalLM& model,
                            const optim::ChainedOptimizer& optimizer);

}  // namespace muoncore::train
