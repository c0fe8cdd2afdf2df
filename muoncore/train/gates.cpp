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

[[noreturn]] void stop(int64_t step, const std::string& key, const std::string& found) {
  throw GateStop(
      fmt::format("stopped at step {} by the gate trainer.gates.{}: {}", step, key, found));
}

void judge_max(int64_t step, const std::string& key, const std::string& measure, double value,
               const std::optional<double>& bound) {
  if (!bound || value <= *bound) return;
  stop(step, key, fmt::format("{} is {:.6g}, above {:.6g}", measure, value, *bound));
}

void judge_min(int64_t step, const std::string& key, const std::string& measure, double value,
               const std::optional<double>& bound) {
  if (!bound || value >= *bound) return;
  stop(step, key, fmt::format("{} is {:.6g}, below {:.6g}", measure, value, *bound));
}

}  // namespace

void Gates::judge_accuracy(int64_t step, double accuracy) {
  if (!settings_.min_accuracy_ratio) return;
  if (!first_accuracy_) first_accuracy_ = accuracy;
  const double bound = *settings_.min_accuracy_ratio * *first_accuracy_;
  low_validations_ = accuracy >= bound ? 0 : low_validations_ + 1;
  if (low_validations_ < settings_.accuracy_patience) return;
  stop(step, "min_accuracy_ratio",
       fmt::format("held-out accuracy is {:.4f}, below {:.6g} of its first value {:.4f} "
                   "({} in a row)",
                   accuracy, *settings_.min_accuracy_ratio, *first_accuracy_, low_validations_));
}

void Gates::check(int64_t step, const Metrics& metrics) {
  if (const auto accuracy = held_out_accuracy(metrics)) judge_accuracy(step, *accuracy);
  for (const auto& [name, value] : metrics) {
    if (name == "actor/kl_loss") {
      judge_max(step, "max_kl", name, value, settings_.max_kl);
    } else if (name == "actor/ppo_kl") {
      judge_max(step, "max_kl", "|actor/ppo_kl|", std::abs(value), settings_.max_kl);
    } else if (name == "actor/entropy") {
      judge_max(step, "max_entropy", name, value, settings_.max_entropy);
      judge_min(step, "min_entropy", name, value, settings_.min_entropy);
    } else if (name.find("/optim/update_rms/") != std::string::npos) {
      judge_max(step, "max_update_rms", name, value, settings_.max_update_rms);
      judge_min(step, "min_update_rms", name, value, settings_.min_update_rms);
    }
  }
}

}  // namespace muoncore::train
