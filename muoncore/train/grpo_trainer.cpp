#include "muoncore/train/grpo_trainer.h"

#include "muoncore/train/rollout_phase.h"
#include "muoncore/train/rollout_record.h"

namespace muoncore::train {

GrpoTrainer::GrpoTrainer(const Config& config, const Ranks& ranks)
    : Trainer(config, ranks),
      task_(set_up_task(config, setup_.tokenizer)),
      settings_(grpo_settings(config, task_->stop_ids(), setup_.tokenizer->padding_id())) {
  if (settings_.use_reference) reference_ = frozen_copy(*setup_.model);
  set_up_steps(config, task_->train_size(), /*measure_update_rms=*/true);
}

void GrpoTrainer::add_log_probs(RolloutBatch& batch, Metrics& metrics) {
  const double temperature = settings_.update.temperature;
  if (settings_.recompute_old_log_probs) {
    const auto phase = recorder_.phase("old_log_prob");
    LogProbPass pass = log_prob_pass(*setup_.model, batch, temperature, settings_.old_log_prob_rows,
                                     /*with_entropy=*/true, ranks());
    batch.old_log_probs = pass.log_probs;
    metrics["actor/entropy"] = pass.mean_entropy;
  }
  if (settings_.use_reference) {
    const auto phase = recorder_.phase("ref");
    batch.ref_log_probs =
        log_prob_pass(*reference_, batch, temperature, settings_.ref_log_prob_rows,
                      /*with_entropy=*/false, ranks())
            .log_probs;
  }
}

RolloutBatch GrpoTrainer::make_batch(int64_t step, Metrics& metrics) {
  rl::RolloutOptions options = settings_.rollout;
  options.step = static_cast<uint64_t>(step);
  RolloutBatch batch;
  {
    const auto phase = recorder_.phase("gen");
    batch = sample_rollouts(*setup_.model, *task_, *setup_.tokenizer,
                            (step - 1) * settings_.prompts_per_step, settings_.prompts_per_step,
                            options, ranks(), settings_.replay_dir);
  }
  {
    const auto phase = recorder_.phase("reward");
    score_rollouts(batch, *task_, ranks());
    if (settings_.record_dir && ranks().rank() == 0)
      record_rollouts(*settings_.record_dir, step, batch, *setup_.tokenizer);
  }
  add_log_probs(batch, metrics);
  const auto phase = recorder_.phase("adv");
  if (settings_.use_kl_in_reward) {
    apply_kl_in_reward(batch, settings_.kl_penalty, settings_.kl_controller, metrics);
  }
  compute_advantages(batch, settings_.norm_adv_by_std);
  return batch;
}

Metrics GrpoTrainer::step() {
  const int64_t step = steps_done() + 1;
  Metrics metrics;
  RolloutBatch batch;
  {
    const auto phase = recorder_.phase("step");
    wait_params(trainee());
    batch = make_batch(step, metrics);
    Trainee trained = trainee();
    // merge keeps what is there: the entropy of before the update, where it was computed.
    metrics.merge(update_actor(trained, batch, settings_.update, step, recorder_));
  }
  add_rollout_metrics(batch, settings_.max_response_length, metrics);
  if (settings_.log_probability_gap) add_probability_gap(batch, metrics);
  finish_step(settings_.prompts_per_step, batch.tokens(), metrics);
  return metrics;
}

Metrics GrpoTrainer::held_out() {
  return evaluate(*setup_.model, *task_, *setup_.tokenizer, settings_.evaluate, ranks());
}

}  // namespace muoncore::train
