// What a run leaves behind of its model: a Hugging Face folder with weights and tokenizer.
#pragma once

#include <cstdint>

#include "muoncore/data/tokenizer.h"
#include "muoncore/models/causal_lm.h"
#include "muoncore/train/run_dir.h"

namespace muoncore::train {

// <run>/global_step_<N>/actor/huggingface with config.json, model.safetensors and the tokenizer's
// files, then latest_checkpointed_iteration.txt. Everything is written under a temporary name,
// synced and renamed: a crash at any point leaves either the whole folder or none of that name.
// Throws Error.
void save_model(const RunDir& run, int64_t step, const models::CausalLM& model,
                const data::Tokenizer& tokenizer);

}  // namespace muoncore::train
