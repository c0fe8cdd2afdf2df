// Advantages of groups of rollouts (GRPO), and the KL penalty inside the reward.
// Source: verl 0.9.1, core_algos.compute_grpo_outcome_advantage and its KL controllers
// (reference/rl.md section 2.1).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muoncore::rl {

// One advantage for each rollout. `groups[i]` names the prompt of rollout i; members of a group
// need not be adjacent.
//   norm_adv_by_std: A = (score - mean) / (std + 1e-6), std unbiased (n - 1); without it A = score
//   - mean (Dr.GRPO).
// A group of one has mean 0 and std 1. A constant group has advantages of exactly zero. Throws when
// the lengths differ and on a score that is not finite.
std::vector<double> grpo_advantages(const std::vector<double>& scores,
                                    const std::vector<int64_t>& groups,
                                    bool norm_adv_by_std_in_grpo = true);

// Weight of the KL penalty in the reward (verl: algorithm.kl_ctrl). `fixed` keeps it; `adaptive`
// steers the measured KL towards a target: coef *= 1 + clip(kl / target_kl - 1, -0.2, 0.2) * n /
// horizon after every batch of n rollouts.
class KlController {
 public:
  static KlController fixed(double kl_coef);
  // Throws unless target_kl > 0 and horizon > 0.
  static KlController adaptive(double kl_coef, double target_kl, double horizon);

  double coef() const { return coef_; }
  void update(double current_kl, int64_t n_rollouts);
  void restore(double coef) { coef_ = coef; }  // from a checkpoint

 private:
  double coef_ = 0.0;
  double target_kl_ = 0.0;  // 0: fixed
  double horizon_ = 0.0;
};

}  // namespace muoncore::rl
