#include "muoncore/train/sft_trainer.h"

#include "muoncore/core/check.h"
#include "muoncore/train/config_derived.h"
#include "muoncore/train/sft_step.h"

namespace muoncore::train {
namespace {

std::unique_ptr<data::SftData> jsonl_data(const Config& config, const std::string& key,
                                          std::shared_ptr<const data::Tokenizer> tokenizer,
                                          bool training) {
  const auto files = data_files(config, key);
  check(!training || !files.empty(), "{}: null, but data.task is jsonl: name the files to train on",
        key);
  if (files.empty()) return nullptr;
  data::SftOptions options;
  options.seed = static_cast<uint64_t>(seed_of(config, "data.seed"));
  options.shuffle = training && config.flag("data.shuffle");
  options.max_length = config.integer("data.max_length");
  options.truncation = config.text("data.truncation");
  options.max_samples = training ? config.integer("data.train_max_samples") : -1;
  options.chat_template = config.text("data.chat_template");
  return data::load_sft_jsonl(files, std::move(tokenizer), options);
}

EvaluateSettings evaluate_settings(const Config& config, const data::Task& task,
                                   const data::Tokenizer& tokenizer) {
  EvaluateSettings out;
  out.rollout.sampling.temperature = 0.0;
  out.rollout.max_new_tokens = config.integer("data.max_response_length");
  out.rollout.stop_ids = task.stop_ids();
  out.rollout.pad_id = tokenizer.padding_id();
  return out;
}

}  // namespace

SftTrainer::SftTrainer(const Config& config, const Ranks& ranks, bool measure_update_rms)
    : Trainer(config, ranks),
      batch_size_(config.integer("data.train_batch_size")),
      micro_rows_(config.integer("data.micro_batch_size_per_gpu")) {
  if (config.text("data.task") == "jsonl") {
    train_data_ = jsonl_data(config, "data.train_files", setup_.tokenizer, /*training=*/true);
    val_data_ = jsonl_data(config, "data.val_files", setup_.tokenizer, /*training=*/false);
  } else {
    task_ = set_up_task(config, setup_.tokenizer);
    train_data_ = data::teacher_sft_data(task_);
    evaluate_ = evaluate_settings(config, *task_, *setup_.tokenizer);
  }
  set_up_steps(config, train_data_->size(), measure_update_rms);
}

Metrics SftTrainer::step() {
  Metrics metrics;
  int64_t tokens = 0;
  {
    const auto phase = recorder_.phase("step");
    const Share share = ranks().share(batch_size_);
    const data::Batch batch =
        data::sft_batch(*train_data_, steps_done() * batch_size_ + share.begin, share.size(),
                        setup_.tokenizer->padding_id());
    tokens = static_cast<int64_t>(
        ranks().sum({batch.lengths.sum().item<double>()}, "tokens of the batch")[0]);
    Trainee trained = trainee();
    metrics = sft_update(trained, batch, micro_rows_, recorder_);
  }
  tokens_done_ += tokens;
  metrics["train/total_tokens(B)"] = static_cast<double>(tokens_done_) / 1e9;
  finish_step(batch_size_, tokens, metrics);
  return metrics;
}

Metrics SftTrainer::held_out() {
  Metrics metrics;
  if (val_data_) {
    metrics["val/loss"] = sft_loss(*setup_.model, *val_data_, batch_size_,
                                   setup_.tokenizer->padding_id(), micro_rows_, ranks());
  }
  if (task_) metrics.merge(evaluate(*setup_.model, *task_, *setup_.tokenizer, evaluate_, ranks()));
  return metrics;
}

}  // namespace muoncore::train
