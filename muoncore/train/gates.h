// Gates stop a collapsing run, with the reason, before it burns the rest of its time. All are off
// by default. Muon's runs have collapsed in public (reference/rl.md 3.1), and clipping does not
// bound a Muon step, so the measures are those that would have shown it: held-out accuracy, KL,
// entropy, update RMS.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "muoncore/core/check.h"
#include "muoncore/train/metrics.h"

namespace muoncore::train {

// Keys of trainer.gates; a bound that is not set does not judge.
struct GateSettings {
  std::optional<double> min_accuracy;    // held-out accuracy, mean over data sources
  std::optional<double> max_kl;          // actor/kl_loss, and |actor/ppo_kl|
  std::optional<double> min_entropy;     // actor/entropy
  std::optional<double> max_update_rms;  // RMS of update / lr, of each optimizer
  int64_t patience = 1;      // readings in a row beyond the bound before the gate closes
  int64_t warmup_steps = 0;  // steps in which nothing is judged
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
  enum class Side { kBelow, kAbove };
  void judge(int64_t step, const std::string& key, const std::string& measure, double value,
             Side allowed, const std::optional<double>& bound);

  GateSettings settings_;
  std::map<std::string, int64_t> beyond_;  // readings in a row, by gate and measure
};

}  // namespace muoncore::train
