#include "muoncore/train/grpo_settings.h"

#include "muoncore/core/check.h"
#include "muoncore/train/config_derived.h"

namespace muoncore::train {
namespace {

const std::string kActor = "actor_rollout_ref.actor.";
const std::string kRollout = "actor_rollout_ref.rollout.";

std::optional<int64_t> maybe_integer(const Config& config, const std::string& key) {
  if (config.is_null(key)) return std::nullopt;
  return config.integer(key);
}

std::optional<std::filesystem::path> maybe_path(const Config& config, const std::string& key) {
  if (config.is_null(key)) return std::nullopt;
  return config.text(key);
}

rl::RolloutOptions rollout_options(const Config& config, const std::vector<int64_t>& stop_ids,
                                   int64_t padding_id) {
  rl::RolloutOptions out;
  out.sampling = {.temperature = config.real(kRollout + "temperature"),
                  .top_k = config.integer(kRollout + "top_k"),
                  .top_p = config.real(kRollout + "top_p")};
  out.n = config.integer(kRollout + "n");
  out.max_new_tokens = config.integer("data.max_response_length");
  out.stop_ids = stop_ids;
  out.pad_id = padding_id;
  out.max_batch_rows = config.integer(kRollout + "max_num_seqs");
  out.seed = static_cast<uint64_t>(seed_of(config, kRollout + "seed"));
  return out;
}

EvaluateSettings evaluate_settings(const Config& config, const rl::RolloutOptions& training) {
  const std::string val = kRollout + "val_kwargs.";
  EvaluateSettings out;
  out.rollout = training;
  out.rollout.n = config.integer(val + "n");
  out.rollout.sampling = {};
  out.rollout.sampling.temperature = 0.0;
  if (config.flag(val + "do_sample")) {
    out.rollout.sampling = {.temperature = config.real(val + "temperature"),
                            .top_k = config.integer(val + "top_k"),
                            .top_p = config.real(val + "top_p")};
  }
  return out;
}

rl::PolicyLossOptions policy_options(const Config& config) {
  rl::PolicyLossOptions out;
  out.loss_mode = rl::parse_loss_mode(config.text(kActor + "policy_loss.loss_mode"));
  out.loss_agg_mode = rl::parse_loss_agg_mode(config.text(kActor + "loss_agg_mode"));
  out.clip_ratio_low = config.real(kActor + "clip_ratio_low");
  out.clip_ratio_high = config.real(kActor + "clip_ratio_high");
  out.clip_ratio_c = config.real(kActor + "clip_ratio_c");
  return out;
}

UpdateSettings update_settings(const Config& config) {
  UpdateSettings out;
  out.mini_batch_rows =
      config.integer(kActor + "ppo_mini_batch_size") * config.integer(kRollout + "n");
  out.ppo_epochs = config.integer(kActor + "ppo_epochs");
  out.shuffle = config.flag(kActor + "shuffle");
  out.seed = static_cast<uint64_t>(config.integer(kActor + "data_loader_seed"));
  out.micro_batch_rows = maybe_integer(config, kActor + "ppo_micro_batch_size_per_gpu");
  out.policy = policy_options(config);
  out.entropy_coeff = config.real(kActor + "entropy_coeff");
  out.calculate_entropy = config.flag(kActor + "calculate_entropy") ||
                          !config.is_null("trainer.gates.min_entropy") ||
                          !config.is_null("trainer.gates.max_entropy");
  out.use_kl_loss = config.flag(kActor + "use_kl_loss");
  out.kl_loss_coef = config.real(kActor + "kl_loss_coef");
  out.kl_loss_type = rl::parse_kl_penalty(config.text(kActor + "kl_loss_type"));
  out.temperature = config.real(kRollout + "temperature");
  out.loss_scale_factor = config.is_null(kActor + "loss_scale_factor")
                              ? static_cast<double>(config.integer("data.max_response_length"))
                              : config.real(kActor + "loss_scale_factor");
  return out;
}

rl::KlController kl_controller(const Config& config) {
  const double coef = config.real("algorithm.kl_ctrl.kl_coef");
  if (config.text("algorithm.kl_ctrl.type") == "fixed") return rl::KlController::fixed(coef);
  return rl::KlController::adaptive(coef, config.real("algorithm.kl_ctrl.target_kl"),
                                    config.real("algorithm.kl_ctrl.horizon"));
}

}  // namespace

GrpoSettings grpo_settings(const Config& config, const std::vector<int64_t>& stop_ids,
                           int64_t padding_id) {
  GrpoSettings out;
  out.prompts_per_step = config.integer("data.train_batch_size");
  out.max_response_length = config.integer("data.max_response_length");
  out.rollout = rollout_options(config, stop_ids, padding_id);
  out.evaluate = evaluate_settings(config, out.rollout);
  out.update = update_settings(config);
  const int64_t rows = out.prompts_per_step * out.rollout.n;
  check(rows % out.update.mini_batch_rows == 0,
        "actor_rollout_ref.actor.ppo_mini_batch_size: value {}, which does not divide "
        "data.train_batch_size = {}",
        config.integer(kActor + "ppo_mini_batch_size"), out.prompts_per_step);
  out.use_kl_in_reward = config.flag("algorithm.use_kl_in_reward");
  out.use_reference = out.update.use_kl_loss || out.use_kl_in_reward;
  out.recompute_old_log_probs =
      out.use_kl_in_reward || out.update.ppo_epochs > 1 || out.update.mini_batch_rows != rows;
  out.old_log_prob_rows = maybe_integer(config, kRollout + "log_prob_micro_batch_size_per_gpu");
  if (!out.old_log_prob_rows) out.old_log_prob_rows = out.update.micro_batch_rows;
  out.ref_log_prob_rows =
      maybe_integer(config, "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu");
  if (!out.ref_log_prob_rows) out.ref_log_prob_rows = out.update.micro_batch_rows;
  out.norm_adv_by_std = config.flag("algorithm.norm_adv_by_std_in_grpo");
  out.kl_penalty = rl::parse_kl_penalty(config.text("algorithm.kl_penalty"));
  out.kl_controller = kl_controller(config);
  out.record_dir = maybe_path(config, "trainer.rollout_data_dir");
  out.replay_dir = maybe_path(config, kRollout + "replay_dir");
  out.log_probability_gap = config.flag(kRollout + "calculate_log_probs");
  return out;
}

}  // namespace muoncore::train
