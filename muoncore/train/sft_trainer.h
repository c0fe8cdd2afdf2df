// Supervised fine-tuning on JSON lines or on a task's teacher; the loss is on the response alone.
#pragma once

#include <memory>
#include <optional>

#include "muoncore/data/sft_data.h"
#include "muoncore/optim/param_scheduler.h"
#include "muoncore/train/evaluate.h"
#include "muoncore/train/trainer.h"

namespace muoncore::train {

class SftTrainer final : public Trainer {
 public:
  // Sets up model, data and optimizer; touches no run folder. Throws Error.
  explicit SftTrainer(const Config& config, bool measure_update_rms = true);

  // train/{loss, grad_norm, lr, global_tokens}, train/optim/*, timings, memory.
  Metrics step() override;
  // JSON lines: val/loss over data.val_files. A generated task: greedy accuracy on its held-out
  // prompts, val-core/<task>/acc/mean@1.
  Metrics validate() override;
  int64_t steps_done() const override { return steps_done_; }
  int64_t total_steps() const override { return total_steps_; }
  models::CausalLM& model() override { return *setup_.model; }
  const data::Tokenizer& tokenizer() const override { return *setup_.tokenizer; }
  const optim::ChainedOptimizer& optimizer() const override { return *optimizer_; }
  StartupFacts facts() const override;

 private:
  int threads_;
  c10::Device device_;
  ModelSetup setup_;
  int64_t batch_size_;
  std::optional<int64_t> micro_rows_;
  std::shared_ptr<const data::Task> task_;  // null for JSON lines
  std::unique_ptr<data::SftData> train_data_;
  std::unique_ptr<data::SftData> val_data_;  // null without val_files
  EvaluateSettings evaluate_;
  int64_t total_steps_ = 0;
  int64_t steps_done_ = 0;
  double tokens_done_ = 0.0;
  std::unique_ptr<optim::ChainedOptimizer> optimizer_;
  std::unique_ptr<optim::OptimizerParamScheduler> scheduler_;
  PhaseRecorder recorder_;
};

}  // namespace muoncore::train
