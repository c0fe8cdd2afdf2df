#include "muoncore/train/grpo_trainer.h"

#include "muoncore/train/rollout_phase.h"

namespace muoncore::train {

GrpoTrainer::GrpoTrainer(const Config& config)
    : threads_(set_threads(config)),
      device_(resolve_device(config)),
      setup_(set_up_model(config, device_)),
      task_(set_up_task(config, setup_.tokenizer)),
      settings_(grpo_settings(config, task_->stop_ids(), setup_.tokenizer->padding_id())),
      total_steps_(train::total_steps(config, task_->train_size())),
      recorder_(device_) {
  if (settings_.use_reference) reference_ = frozen_copy(*setup_.model);
  OptimizerSetup made = set_up_optimizer(config, *setup_.model, total_steps_);
  optimizer_ = std::move(made.optimizer);
  scheduler_ = std::move(made.scheduler);
}

StartupFacts GrpoTrainer::facts() const {
  StartupFacts facts;
  facts.command = "grpo";
  facts.model_source = setup_.source;
  facts.device = device_;
  facts.threads = threads_;
  facts.with_reference = settings_.use_reference;
  facts.total_steps = total_steps_;
  return facts;
}

void GrpoTrainer::add_log_probs(RolloutBatch& batch, Metrics& metrics) {
  const double temperature = settings_.update.temperature;
  if (settings_.recompute_old_log_probs) {
    const auto phase = recorder_.phase("old_log_prob");
    LogProbPass pass = log_prob_pass(*setup_.model, batch, temperature, settings_.old_log_prob_rows,
                                     /*with_entropy=*/true);
    batch.old_log_probs = pass.log_probs;
    metrics["actor/entropy"] = pass.mean_entropy;
  }
  if (settings_.use_reference) {
    const auto phase = recorder_.phase("ref");
    batch.ref_log_probs = log_prob_pass(*reference_, batch, temperature,
                                        settings_.ref_log_prob_rows, /*with_entropy=*/false)
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
                            options);
  }
  {
    const auto phase = recorder_.phase("reward");
    score_rollouts(batch, *task_);
  }
  add_log_probs(batch, metrics);
  const auto phase = recorder_.phase("adv");
  if (settings_.use_kl_in_reward) {
    apply_kl_in_reward(batch, settings_.kl_penalty, settings_.kl_controller, metrics);
  }
  compute_advantages(batch, settings_.norm_adv_by_std);
  return batch;
}

void GrpoTrainer::add_step_totals(const RolloutBatch& batch, Metrics& metrics) {
  const auto tokens = static_cast<double>(batch.tokens());
  metrics.merge(recorder_.take());
  metrics["perf/total_num_tokens"] = tokens;
  metrics["perf/time_per_step"] = metrics["timing_s/step"];
  metrics["perf/throughput"] = tokens / metrics["timing_s/step"];
  metrics["training/global_step"] = static_cast<double>(steps_done_);
  metrics["training/epoch"] =
      static_cast<double>((steps_done_ - 1) * settings_.prompts_per_step / task_->train_size());
}

Metrics GrpoTrainer::step() {
  const int64_t step = steps_done_ + 1;
  Metrics metrics;
  RolloutBatch batch;
  {
    const auto phase = recorder_.phase("step");
    batch = make_batch(step, metrics);
    Trainee trainee{*setup_.model, *optimizer_, *scheduler_};
    // merge keeps what is there: the entropy of before the update, where it was computed.
    metrics.merge(update_actor(trainee, batch, settings_.update, step, recorder_));
  }
  steps_done_ = step;
  add_rollout_metrics(batch, settings_.max_response_length, metrics);
  if (settings_.log_probability_gap) add_probability_gap(batch, metrics);
  add_step_totals(batch, metrics);
  return metrics;
}

Metrics GrpoTrainer::validate() {
  Metrics metrics;
  {
    const auto phase = recorder_.phase("testing");
    metrics = evaluate(*setup_.model, *task_, *setup_.tokenizer, settings_.evaluate);
  }
  Metrics phase = recorder_.take_phase("testing");
  if (!metrics.empty()) metrics.merge(phase);
  return metrics;
}

}  // namespace muoncore::train
