// The phases that make a RolloutBatch: sample, score, log-probabilities, advantages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "muoncore/models/causal_lm.h"
#include "muoncore/rl/advantage.h"
#include "muoncore/rl/kl_penalty.h"
#include "muoncore/train/metrics.h"
#include "muoncore/train/micro_batches.h"
#include "muoncore/train/rollout_batch.h"

namespace muoncore::train {

// Prompts first .. first + count of the task's training prompts, options.n responses each. Each
// rank samples those of its share of the prompts; all get the whole batch. Random numbers are keyed
// by the prompt's place in the batch, so responses do not depend on the number of ranks (but for
// the last bits of the logits: rl/rollout.h). count is at least the number of ranks. `recorded`: no
// sampling, the rollouts of this step are read from that folder (rollout_record.h).
RolloutBatch sample_rollouts(models::CausalLM& model, const data::Task& task,
                             const data::Tokenizer& tokenizer, int64_t first, int64_t count,
                             rl::RolloutOptions options, const Ranks& ranks,
                             const std::optional<std::filesystem::path>& recorded = {});

// Fills scores and rewards (equal so far); each rank judges the rows that it sampled.
void score_rollouts(RolloutBatch& batch, const data::Task& task, const Ranks& ranks);

struct LogProbPass {
  at::Tensor log_probs;     // [N, T] fp32, 0 where no response token stands
  double mean_entropy = 0;  // over response tokens; 0 if not asked
};

// Log-probabilities of the responses under `model` at the sampling temperature, forward only, in
// micro-batches of at most `rows`, each rank those of its share of the rows; the result does not
// depend on how they are cut (but for the last bits).
LogProbPass log_prob_pass(models::CausalLM& model, const RolloutBatch& batch, double temperature,
                          std::optional<int64_t> rows, bool with_entropy, const Ranks& ranks);

// Takes the KL penalty against ref_log_probs from the rewards, and steers the controller. Needs old
// and reference log-probabilities. Adds actor/reward_kl_penalty and actor/reward_kl_penalty_coeff.
void apply_kl_in_reward(RolloutBatch& batch, const rl::KlPenalty& penalty,
                        rl::KlController& controller, Metrics& metrics);

// Fills advantages from rewards, group by prompt.
void compute_advantages(RolloutBatch& batch, bool norm_adv_by_std);

// critic/{score,rewards,advantages}/* (advantages once per response token, as verl), the share of
// rollouts whose group has equal rewards (critic/constant_groups), response_length/*,
// prompt_length/*.
void add_rollout_metrics(const RolloutBatch& batch, int64_t max_response_length, Metrics& metrics);

// training/rollout_probs_diff_{mean,max}: how far the sampler's probabilities of its tokens are
// from the trainer's. Nothing when old_log_probs are not known.
void add_probability_gap(const RolloutBatch& batch, Metrics& metrics);

}  // namespace muoncore::train
