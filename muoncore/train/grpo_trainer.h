// GRPO: sample -> reward -> (old_log_prob) -> (ref) -> advantages -> update_actor.
// Source of the order and of every timer's name: verl 0.9.1, trainer/ppo (reference/verl.md 3.2).
//
// verl computes the old log-probabilities in a forward pass of their own, always. Here that pass is
// made only when something needs it (more than one optimizer step per batch, or KL in the reward):
// with one step per batch they are those of the update's own forward pass.
#pragma once

#include <memory>

#include "muoncore/optim/param_scheduler.h"
#include "muoncore/train/grpo_settings.h"
#include "muoncore/train/rollout_batch.h"
#include "muoncore/train/trainer.h"

namespace muoncore::train {

class GrpoTrainer final : public Trainer {
 public:
  // Sets up model, task and optimizer; touches no run folder. Throws Error.
  explicit GrpoTrainer(const Config& config);

  Metrics step() override;
  Metrics validate() override;
  int64_t steps_done() const override { return steps_done_; }
  int64_t total_steps() const override { return total_steps_; }
  models::CausalLM& model() override { return *setup_.model; }
  const data::Tokenizer& tokenizer() const override { return *setup_.tokenizer; }
  const optim::ChainedOptimizer& optimizer() const override { return *optimizer_; }
  StartupFacts facts() const override;

 private:
  RolloutBatch make_batch(int64_t step, Metrics& metrics);
  void add_log_probs(RolloutBatch& batch, Metrics& metrics);
  void add_step_totals(const RolloutBatch& batch, Metrics& metrics);

  int threads_;
  c10::Device device_;
  ModelSetup setup_;
  std::shared_ptr<const data::Task> task_;
  GrpoSettings settings_;
  std::shared_ptr<models::CausalLM> reference_;  // null without a KL penalty
  int64_t total_steps_ = 0;
  int64_t steps_done_ = 0;
  std::unique_ptr<optim::ChainedOptimizer> optimizer_;
  std::unique_ptr<optim::OptimizerParamScheduler> scheduler_;
  PhaseRecorder recorder_;
};

}  // namespace muoncore::train
