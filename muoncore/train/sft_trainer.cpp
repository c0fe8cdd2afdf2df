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

SftTrainer::SftTrainer(const Config& config, bool measure_update_rms)
    : threads_(set_threads(config)),
      device_(resolve_device(config)),
      setup_(set_up_model(config, device_)),
      batch_size_(config.integer("data.train_batch_size")),
      micro_rows_(config.integer("data.micro_batch_size_per_gpu")),
      recorder_(device_) {
  if (config.text("data.task") == "jsonl") {
    train_data_ = jsonl_data(config, "data.train_files", setup_.tokenizer, /*training=*/true);
    val_data_ = jsonl_data(config, "data.val_files", setup_.tokenizer, /*training=*/false);
  } else {
    task_ = set_up_task(config, setup_.tokenizer);
    train_data_ = data::teacher_sft_data(task_);
    evaluate_ = evaluate_settings(config, *task_, *setup_.tokenizer);
  }
  total_steps_ = train::total_steps(config, train_data_->size());
  OptimizerSetup made = set_up_optimizer(config, *setup_.model, total_steps_, measure_update_rms);
  optimizer_ = std::move(made.optimizer);
  scheduler_ = std::move(made.scheduler);
}

StartupFacts SftTrainer::facts() const {
  StartupFacts facts;
  facts.command = "sft";
  facts.model_source = setup_.source;
  facts.device = device_;
  facts.threads = threads_;
  facts.total_steps = total_steps_;
  return facts;
}

Metrics SftTrainer::step() {
  Metrics metrics;
  double tokens = 0.0;
  {
    const auto phase = recorder_.phase("step");
    const data::Batch batch = data::sft_batch(*train_data_, steps_done_ * batch_size_, batch_size_,
                                              setup_.tokenizer->padding_id());
    tokens = batch.lengths.sum().item<double>();
    Trainee trainee{*setup_.model, *optimizer_, *scheduler_};
    metrics = sft_update(trainee, batch, micro_rows_, recorder_);
  }
  ++steps_done_;
  tokens_done_ += tokens;
  metrics.merge(recorder_.take());
  metrics["train/total_tokens(B)"] = tokens_done_ / 1e9;
  metrics["perf/total_num_tokens"] = tokens;
  metrics["perf/time_per_step"] = metrics["timing_s/step"];
  metrics["perf/throughput"] = tokens / metrics["timing_s/step"];
  metrics["training/global_step"] = static_cast<double>(steps_done_);
  metrics["training/epoch"] =
      static_cast<double>((steps_done_ - 1) * batch_size_ / train_data_->size());
  return metrics;
}

Metrics SftTrainer::validate() {
  Metrics metrics;
  {
    const auto phase = recorder_.phase("testing");
    if (val_data_) {
      metrics["val/loss"] = sft_loss(*setup_.model, *val_data_, batch_size_,
                                     setup_.tokenizer->padding_id(), micro_rows_);
    }
    if (task_) metrics.merge(evaluate(*setup_.model, *task_, *setup_.tokenizer, evaluate_));
  }
  Metrics phase = recorder_.take_phase("testing");
  if (!metrics.empty()) metrics.merge(phase);
  return metrics;
}

}  // namespace muoncore::train
