// What a run will hold of its model, by formula, before the first step.
#pragma once

#include <cstdint>
#include <map>

#include "muoncore/models/causal_lm.h"
#include "muoncore/parallel/wrap.h"

namespace muoncore::train {

struct MemoryPlan {
  int64_t weights = 0;          // where there are buffers: all of them, padding too
  int64_t gradients = 0;        // likewise; else as large as the weights
  int64_t masters = 0;          // fp32 copies of the bf16 weights that the rank owns
  int64_t optimizer_state = 0;  // of what the rank owns (ChainedOptimizer::planned_state_bytes)
  int64_t reference = 0;        // weights of the reference model
  int64_t total() const;
};

// Of one data-parallel rank.
MemoryPlan plan_memory(const models::CausalLM& model, const parallel::WrappedModel& wrapped,
                       int64_t rank, bool with_reference);

// How many elements a rank updates of each parameter, by its index in the chain.
std::map<size_t, int64_t> owned_elements(const parallel::WrappedModel& wrapped, int64_t rank);

}  // namespace muoncore::train
