// A grpo config as the plain settings of the phases.
#pragma once

#include <filesystem>
#include <optional>

#include "muoncore/rl/advantage.h"
#include "muoncore/train/config.h"
#include "muoncore/train/evaluate.h"
#include "muoncore/train/update_actor.h"

namespace muoncore::train {

struct GrpoSettings {
  int64_t prompts_per_step = 1;  // data.train_batch_size
  int64_t max_response_length = 1;
  rl::RolloutOptions rollout;  // without the step
  EvaluateSettings evaluate;
  UpdateSettings update;
  std::optional<int64_t> old_log_prob_rows;  // of a micro-batch
  std::optional<int64_t> ref_log_prob_rows;
  bool recompute_old_log_probs = false;  // more than one optimizer step per batch, or KL in reward
  bool use_reference = false;            // iff use_kl_loss or use_kl_in_reward
  bool norm_adv_by_std = true;
  bool use_kl_in_reward = false;
  rl::KlPenalty kl_penalty;
  rl::KlController kl_controller = rl::KlController::fixed(0.0);
  bool log_probability_gap = true;                  // rollout.calculate_log_probs
  std::optional<std::filesystem::path> record_dir;  // trainer.rollout_data_dir
  std::optional<std::filesystem::path> replay_dir;  // rollout.replay_dir
};

// stop_ids: the task's. padding_id: the tokenizer's.
GrpoSettings grpo_settings(const Config& config, const std::vector<int64_t>& stop_ids,
                           int64_t padding_id);

}  // namespace muoncore::train
