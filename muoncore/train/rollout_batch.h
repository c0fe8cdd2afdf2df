// What one GRPO step works on: prompts, their sampled responses, and what the phases add to them.
// Every rank holds the whole batch: it is small beside a model, and so every number that is made of
// it is the same on all ranks.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "muoncore/data/task.h"
#include "muoncore/rl/rollout.h"
#include "muoncore/train/ranks.h"

namespace muoncore::train {

// N = prompts * n rows; row i answers prompt i / n. T as in rl::Rollout.
struct RolloutBatch {
  std::vector<data::Prompt> prompts;
  rl::Rollout rollout;
  // Texts of rows own.begin .. own.end, which this rank sampled; special tokens left out.
  std::vector<std::string> responses;
  Share own;

  std::vector<double> scores;      // [N] of the task's reward
  std::vector<double> rewards;     // [N] scores less the KL penalty, if there is one
  std::vector<double> advantages;  // [N]
  at::Tensor old_log_probs;        // [N, T] fp32; undefined: those of the update's own first pass
  at::Tensor ref_log_probs;        // [N, T] fp32; undefined without a reference

  int64_t samples_per_prompt = 1;
  int64_t rows() const { return rollout.rows(); }
  std::vector<int64_t> lengths() const;  // [N] prompt + response
  int64_t tokens() const;                // sum of lengths()
};

}  // namespace muoncore::train
