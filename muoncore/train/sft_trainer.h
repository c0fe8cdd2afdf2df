// Supervised fine-tuning on JSON lines or on a task's teacher; the loss is on the response alone.
#pragma once

#include <memory>
#include <optional>

#include "muoncore/data/sft_data.h"
#include "muoncore/train/evaluate.h"
#include "muoncore/train/trainer.h"

namespace muoncore::train {

class SftTrainer final : public Trainer {
 public:
  // Sets up model, data and optimizer; touches no run folder. Throws Error.
  SftTrainer(const Config& config, const Ranks& ranks, bool measure_update_rms = true);

  // train/{loss, grad_norm, lr, global_tokens}, train/optim/*, timings, memory.
  Metrics step() override;

 protected:
  // JSON lines: val/loss over data.val_files. A generated task: greedy accuracy on its held-out
  // prompts, val-core/<task>/acc/mean@1.
  Metrics held_out() override;
  bool with_reference() const override { return false; }

 private:
  int64_t batch_size_;
  std::optional<int64_t> micro_rows_;
  std::shared_ptr<const data::Task> task_;  // null for JSON lines
  std::unique_ptr<data::SftData> train_data_;
  std::unique_ptr<data::SftData> val_data_;  // null without val_files
  EvaluateSettings evaluate_;
  int64_t tokens_done_ = 0;
};

}  // namespace muoncore::train
