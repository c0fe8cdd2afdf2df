#include "muoncore/train/gates.h"

#include <cmath>

namespace muoncore::train {
namespace {

// Mean of the accuracies of all data sources.
std::optional<double> held_out_accuracy(const Metrics& metrics) {
  double sum = 0.0;
  int64_t count = 0;
  for (auto it = metrics.lower_bound("val-core/");
       it != metrics.end() && it->first.starts_with("val-core/"); ++it) {
    sum += it->second;
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / static_cast<double>(count));
}

}  // namespace

void Gates::judge(int64_t step, const std::string& key, const std::string& measure, double value,
                  Side allowed, const std::optional<double>& bound) {
  if (!bound) return;
  const bool within = allowed == Side::kBelow ? value <= *bound : value >= *bound;
  int64_t& beyond = beyond_[key + " " + measure];
  beyond = within ? 0 : beyond + 1;
  if (beyond < settings_.patience) return;
  throw GateStop(
      fmt::format("stopped at step {} by trainer.gates.{} = {:.6g}: {} is {:.6g} ({} "
                  "reading{} in a row {} the bound)",
                  step, key, *bound, measure, value, beyond, beyond == 1 ? "" : "s",
                  allowed == Side::kBelow ? "above" : "below"));
}

void Gates::check(int64_t step, const Metrics& metrics) {
  if (step <= settings_.warmup_steps) return;
  if (const auto accuracy = held_out_accuracy(metrics)) {
    judge(step, "min_accuracy", "held-out accuracy", *accuracy, Side::kAbove,
          settings_.min_accuracy);
  }
  for (const auto& [name, value] : metrics) {
    if (name == "actor/kl_loss") {
      judge(step, "max_kl", name, value, Side::kBelow, settings_.max_kl);
    } else if (name == "actor/ppo_kl") {
      judge(step, "max_kl", "|actor/ppo_kl|", std::abs(value), Side::kBelow, settings_.max_kl);
    } else if (name == "actor/entropy") {
      judge(step, "min_entropy", name, value, Side::kAbove, settings_.min_entropy);
    } else if (name.find("/optim/update_rms/") != std::string::npos) {
      judge(step, "max_update_rms", name, value, Side::kBelow, settings_.max_update_rms);
    }
  }
}

}  // namespace muoncore::train
