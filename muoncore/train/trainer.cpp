#include "muoncore/train/trainer.h"

#include <utility>

namespace muoncore::train {

Trainer::Trainer(const Config& config)
    : command_(to_string(config.kind())),
      threads_(set_threads(config)),
      device_(resolve_device(config)),
      setup_(set_up_model(config, device_)),
      recorder_(device_) {}

void Trainer::set_up_steps(const Config& config, int64_t examples, bool measure_update_rms) {
  examples_ = examples;
  total_steps_ = train::total_steps(config, examples);
  OptimizerSetup made = set_up_optimizer(config, *setup_.model, total_steps_, measure_update_rms);
  optimizer_ = std::move(made.optimizer);
  scheduler_ = std::move(made.scheduler);
}

StartupFacts Trainer::facts() const {
  StartupFacts facts;
  facts.command = command_;
  facts.model_source = setup_.source;
  facts.device = device_;
  facts.threads = threads_;
  facts.with_reference = with_reference();
  facts.total_steps = total_steps_;
  return facts;
}

Metrics Trainer::validate() {
  Metrics metrics;
  {
    const auto phase = recorder_.phase("testing");
    metrics = held_out();
  }
  Metrics phase = recorder_.take_phase("testing");
  if (!metrics.empty()) metrics.merge(phase);
  return metrics;
}

void Trainer::finish_step(int64_t batch, int64_t tokens, Metrics& metrics) {
  metrics["training/global_step"] = static_cast<double>(steps_done_ + 1);
  metrics["training/epoch"] = static_cast<double>(steps_done_ * batch / examples_);
  ++steps_done_;
  metrics.merge(recorder_.take());
  const double seconds = metrics.at("timing_s/step");
  metrics["perf/total_num_tokens"] = static_cast<double>(tokens);
  metrics["perf/time_per_step"] = seconds;
  metrics["perf/throughput"] = static_cast<double>(tokens) / seconds;
}

}  // namespace muoncore::train
