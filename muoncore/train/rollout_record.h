// Rollouts on disk, one file of JSON lines per step, one line per response: to read what a run
// sampled (verl's trainer.rollout_data_dir, and its fields input, output, gts, score, step), and to
// train on the very same responses again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "muoncore/data/tokenizer.h"
#include "muoncore/train/rollout_batch.h"

namespace muoncore::train {

// Writes <folder>/<step>.jsonl, in the order of the rows: verl's fields, and prompt_ids,
// response_ids, log_probs (of the sampler, all digits) and stopped (by a stop token). Throws Error.
void record_rollouts(const std::filesystem::path& folder, int64_t step, const RolloutBatch& batch,
                     const data::Tokenizer& tokenizer);

// What rl::generate gave for these prompts in the recorded run: options.n, step and first_prompt
// say where they stand. Throws Error with file and line when it has other prompts, or is no such
// file.
rl::Rollout recorded_rollouts(const std::filesystem::path& folder,
                              const std::vector<std::vector<int64_t>>& prompts,
                              const rl::RolloutOptions& options);

}  // namespace muoncore::train
