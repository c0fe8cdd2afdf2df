// Gates stop a collapsing run, with the reason, before it burns the rest of its time. All are off
// by default. Muon's runs have collapsed in public (reference/rl.md 3.1), and clipping does not
// bound a Muon step, so the measures are those that would have shown it: held-out accuracy, KL,
// entropy, update RMS.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "muoncore/core/check.h"
#include "muoncore/train/metrics.h"

namespace muoncore::train {

// Keys of trainer.gates; a bound that is not set does not judge.
struct GateSettings {
  // Held-out accuracy (mean over data sources) below this share of its first value,
  // `accuracy_patience` validations in a row.
  std::optional<double> min_accuracy_ratio;
  int64_t accuracy_patience = 1;
  std::optional<double> max_kl;       // actor/kl_loss, and |actor/ppo_kl|
  std::optional<double> min_entropy;  // actor/entropy
  std::optional<double> max_entropy;
  std::optional<double> min_update_rms;  // RMS of update / lr, of each optimizer
  std::optional<double> max_update_rms;
};

// A gate closed: the message names the gate's key, the measure, its value and the bound.
class GateStop : public Error {
 public:
  using Error::Error;
};

class Gates {
 public:
  explicit Gates(const GateSettings& settings) : settings_(settings) {}

  // After each step, with all of its metrics; throws GateStop. A measure that is not there is no
  // reading; one that is NaN is beyond any bound.
  void check(int64_t step, const Metrics& metrics);

 private:
  void judge_accuracy(int64_t step, double accuracy);

  GateSettings settings_;
  std::optional<double> first_accuracy_;
  int64_t low_validations_ = 0;  // in a row
};

}  // namespace muoncore::train
