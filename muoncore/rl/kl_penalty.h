// Estimators of the KL divergence of the policy from a reference, per token, from log-probabilities
// of sampled tokens. Source: J. Schulman, "Approximating KL divergence" (2020); names and clamps:
// verl 0.9.1, core_algos.kl_penalty (reference/rl.md section 2.3). With d = ref - log_prob:
//   kl, k1: -d    abs: |d|    mse, k2: d^2 / 2    low_var_kl, k3: clamp(e^c - c - 1, -10, 10), c =
//   clamp(d, -20, 20)
// A `+` after a name (k1+, k3+, …) keeps the value and takes the gradient of k2 (straight-through).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

namespace muoncore::rl {

enum class KlEstimator { kK1, kAbs, kK2, kK3 };

struct KlPenalty {
  KlEstimator value = KlEstimator::kK3;
  bool straight_through = false;
};

const std::vector<std::string>& kl_penalty_names();  // verl's names, without and with `+`
KlPenalty parse_kl_penalty(std::string_view name);   // throws on another name

// log_probs, ref_log_probs [B, T] -> [B, T]; the gradient flows into log_probs only.
at::Tensor kl_penalty(const at::Tensor& log_probs, const at::Tensor& ref_log_probs,
                      const KlPenalty& penalty);

// KL in the reward (algorithm.use_kl_in_reward): the score of each rollout less kl_coef * sum of
// its penalties. scores [B], old_log_probs, ref_log_probs, mask [B, T] -> scores [B] fp64, and the
// mean over rows of the rows' mean KL (what verl logs as actor/reward_kl_penalty and feeds to the
// controller).
struct KlReward {
  std::vector<double> scores;
  double mean_kl = 0;
};
KlReward kl_in_reward(const std::vector<double>& scores, const at::Tensor& old_log_probs,
                      const at::Tensor& ref_log_probs, const at::Tensor& mask,
                      const KlPenalty& penalty, double kl_coef);

}  // namespace muoncore::rl
