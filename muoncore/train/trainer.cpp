#include "muoncore/train/trainer.h"

#include <set>
#include <vector>

namespace muoncore::train {

namespace {

// Metrics of one rank: as those of this process alone.
bool is_local(const std::string& name) {
  return name.starts_with("timing_s/") || name.starts_with("perf/memory/") ||
         name.starts_with("actor/perf/") || name.ends_with("/optim/state_bytes");
}

bool shows_evenness(const std::string& name) {
  static const std::set<std::string> names = {"timing_s/gen", "timing_s/update",
                                              "timing_s/update_actor", "timing_s/optimizer_step",
                                              "actor/perf/max_memory_allocated_gb"};
  return names.contains(name) || name.ends_with("/optim/state_bytes");
}

void take_over_ranks(Metrics& metrics, const Ranks& ranks) {
  if (ranks.size() == 1) return;
  std::vector<std::string> names;
  std::vector<double> values;
  for (const auto& [name, value] : metrics) {
    if (!is_local(name)) continue;
    names.push_back(name);
    values.push_back(value);
  }
  const std::vector<double> largest = ranks.max(values, "times and memory");
  const std::vector<double> sums = ranks.sum(values, "times and memory");
  for (size_t i = 0; i < names.size(); ++i) {
    metrics[names[i]] = largest[i];
    if (shows_evenness(names[i]))
      metrics[names[i] + "/rank_mean"] = sums[i] / static_cast<double>(ranks.size());
  }
}

}  // namespace

Trainer::Trainer(const Config& config, const Ranks& ranks)
    : command_(to_string(config.kind())),
      threads_(set_threads(config, ranks)),
      ranks_(ranks),
      device_(resolve_device(config, ranks)),
      setup_(set_up_model(config, device_)),
      recorder_(device_) {}

void Trainer::set_up_steps(const Config& config, int64_t examples, bool measure_update_rms) {
  examples_ = examples;
  total_steps_ = train::total_steps(config, examples);
  optimizer_ = set_up_optimizer(config, *setup_.model, total_steps_, ranks_, measure_update_rms);
}

models::CausalLM& Trainer::model() {
  wait_params(trainee());
  return *setup_.model;
}

StartupFacts Trainer::facts() const {
  StartupFacts facts;
  facts.command = command_;
  facts.model_source = setup_.source;
  facts.device = device_;
  facts.threads = threads_;
  facts.ranks = ranks_.size();
  facts.with_reference = with_reference();
  facts.total_steps = total_steps_;
  return facts;
}

Metrics Trainer::validate() {
  Metrics metrics;
  {
    const auto phase = recorder_.phase("testing");
    wait_params(trainee());
    metrics = held_out();
  }
  Metrics phase = recorder_.take_phase("testing");
  take_over_ranks(phase, ranks_);
  if (!metrics.empty()) metrics.merge(phase);
  return metrics;
}

void Trainer::finish_step(int64_t batch, int64_t tokens, Metrics& metrics) {
  metrics["training/global_step"] = static_cast<double>(steps_done_ + 1);
  metrics["training/epoch"] = static_cast<double>(steps_done_ * batch / examples_);
  ++steps_done_;
  metrics.merge(recorder_.take());
  take_over_ranks(metrics, ranks_);
  const double seconds = metrics.at("timing_s/step");
  metrics["perf/total_num_tokens"] = static_cast<double>(tokens);
  metrics["perf/time_per_step"] = seconds;
  metrics["perf/throughput"] =
      static_cast<double>(tokens) / seconds / static_cast<double>(ranks_.size());
}

}  // namespace muoncore::train
