#include "muoncore/rl/advantage.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "muoncore/core/check.h"

namespace muoncore::rl {
namespace {

constexpr double kStdEpsilon = 1e-6;
constexpr double kAdaptiveClip = 0.2;

struct Moments {
  double mean = 0.0;
  double std = 1.0;
};

Moments group_moments(const std::vector<double>& scores, const std::vector<size_t>& members) {
  if (members.size() == 1) return {};
  double first = scores[members[0]];
  bool constant =
      std::all_of(members.begin(), members.end(), [&](size_t i) { return scores[i] == first; });
  if (constant) return {first, 0.0};  // exactly: a rounded mean would leave residues over 1e-6
  double n = static_cast<double>(members.size());
  double mean = 0.0;
  for (size_t i : members) mean += scores[i] / n;
  double squares = 0.0;
  for (size_t i : members) squares += (scores[i] - mean) * (scores[i] - mean);
  return {mean, std::sqrt(squares / (n - 1.0))};
}

}  // namespace

std::vector<double> grpo_advantages(const std::vector<double>& scores,
                                    const std::vector<int64_t>& groups,
                                    bool norm_adv_by_std_in_grpo) {
  check(scores.size() == groups.size(), "{} scores came with the groups of {} rollouts",
        scores.size(), groups.size());
  std::map<int64_t, std::vector<size_t>> members;
  for (size_t i = 0; i < scores.size(); ++i) {
    check(std::isfinite(scores[i]),
          "the score of rollout {} (group {}) is {}: scores must be finite", i, groups[i],
          scores[i]);
    members[groups[i]].push_back(i);
  }
  std::vector<double> advantages(scores.size());
  for (const auto& [group, rows] : members) {
    Moments m = group_moments(scores, rows);
    for (size_t i : rows) {
      advantages[i] = scores[i] - m.mean;
      if (norm_adv_by_std_in_grpo) advantages[i] /= m.std + kStdEpsilon;
    }
  }
  return advantages;
}

KlController KlController::fixed(double kl_coef) {
  KlController c;
  c.coef_ = kl_coef;
  return c;
}

KlController KlController::adaptive(double kl_coef, double target_kl, double horizon) {
  check(target_kl > 0.0, "algorithm.kl_ctrl.target_kl is {}: it must be positive", target_kl);
  check(horizon > 0.0, "algorithm.kl_ctrl.horizon is {}: it must be positive", horizon);
  KlController c;
  c.coef_ = kl_coef;
  c.target_kl_ = target_kl;
  c.horizon_ = horizon;
  return c;
}

void KlController::update(double current_kl, int64_t n_rollouts) {
  if (target_kl_ == 0.0) return;
  double error = std::clamp(current_kl / target_kl_ - 1.0, -kAdaptiveClip, kAdaptiveClip);
  coef_ *= 1.0 + error * static_cast<double>(n_rollouts) / horizon_;
}

}  // namespace muoncore::rl
