// GRPO: sample -> reward -> (old_log_prob) -> (ref) -> advantages -> update_actor.
// Source of the order and of every timer's name: verl 0.9.1, trainer/ppo (reference/verl.md 3.2).
//
// verl computes the old log-probabilities in a forward pass of their own, always. Here that pass is
// made only when something needs it (more than one optimizer step per batch, or KL in the reward):
// with one step per batch they are those of the update's own forward pass.
#pragma once

#include <memory>

#include "muoncore/train/grpo_settings.h"
#include "muoncore/train/rollout_batch.h"
#include "muoncore/train/trainer.h"

namespace muoncore::train {

class GrpoTrainer final : public Trainer {
 public:
  // Sets up model, task and optimizer; touches no run folder. Throws Error.
  GrpoTrainer(const Config& config, const Ranks& ranks);

  Metrics step() override;

 protected:
  Metrics held_out() override;
  bool with_reference() const override { return reference_ != nullptr; }

 private:
  RolloutBatch make_batch(int64_t step, Metrics& metrics);
  void add_log_probs(RolloutBatch& batch, Metrics& metrics);

  std::shared_ptr<const data::Task> task_;
  GrpoSettings settings_;
  std::shared_ptr<models::CausalLM> reference_;  // null without a KL penalty
};

}  // namespace muoncore::train
