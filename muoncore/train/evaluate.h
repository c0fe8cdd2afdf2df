// Accuracy on held-out prompts.
#pragma once

#include <cstdint>

#include "muoncore/data/task.h"
#include "muoncore/models/causal_lm.h"
#include "muoncore/rl/rollout.h"
#include "muoncore/train/metrics.h"
#include "muoncore/train/ranks.h"

namespace muoncore::train {

struct EvaluateSettings {
  rl::RolloutOptions rollout;  // verl's val_kwargs: by default greedy, one sample
  int64_t batch_prompts = 512;
};

// Every held-out prompt of the task; each rank takes its share of them, and all get the same. For
// each data source: val-core/<source>/acc/mean@<n> (mean
// reward over prompts and samples) and val-aux/<source>/response_length/mean. Empty when the task
// has no held-out prompts.
Metrics evaluate(models::CausalLM& model, const data::Task& task, const data::Tokenizer& tokenizer,
                 const EvaluateSettings& settings, const Ranks& ranks);

}  // namespace muoncore::train
