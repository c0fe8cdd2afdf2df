// Policy-gradient losses with a clipped probability ratio.
// Source: verl 0.9.1, core_algos.compute_policy_loss_{vanilla,gspo,cispo} (reference/rl.md
// section 2.2).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include "muoncore/rl/loss_aggregation.h"

namespace muoncore::rl {

enum class LossMode {
  kVanilla,  // PPO-clip per token, with dual clip (Ye et al. 2020, arXiv:1912.09729, section
             // "dual-clip PPO")
  kGspo,     // one ratio per sequence (Zheng et al. 2025, arXiv:2507.18071), gradient through each
             // token
  kCispo,    // clipped, detached ratio as a weight of the log-probability (MiniMax-M1,
             // arXiv:2506.13585)
};

const std::vector<std::string>& loss_mode_names();  // in the order of the enum
LossMode parse_loss_mode(std::string_view name);    // throws on another name

struct PolicyLossOptions {
  LossMode loss_mode = LossMode::kVanilla;
  double clip_ratio_low = 0.2;
  double clip_ratio_high = 0.2;
  double clip_ratio_c = 3.0;  // dual clip, > 1; vanilla only
  LossAggMode loss_agg_mode = LossAggMode::kTokenMean;
};

// Sums over the response tokens seen so far; add those of micro-batches with +=, then take the
// means.
struct PolicyMetrics {
  double tokens = 0;
  double clipped = 0;        // tokens where the clipped branch is the larger one
  double clipped_lower = 0;  // tokens of negative advantage held by the dual clip
  double negative_log_ratio = 0;

  PolicyMetrics& operator+=(const PolicyMetrics& other);
  double pg_clipfrac() const { return clipped / (tokens + 1e-8); }
  double pg_clipfrac_lower() const { return clipped_lower / (tokens + 1e-8); }
  double ppo_kl() const { return negative_log_ratio / (tokens + 1e-8); }  // E[log old - log new]
};

struct PolicyLoss {
  at::Tensor loss;  // scalar
  PolicyMetrics metrics;
};

// log_probs, old_log_probs, mask: [B, T]; advantages [B] (one per rollout) or [B, T]. Gradients
// flow into log_probs only. Throws on clip bounds that make no sense (clip_ratio_c <= 1, a negative
// clip ratio) and on shapes that differ.
PolicyLoss policy_loss(const at::Tensor& log_probs, const at::Tensor& old_log_probs,
                       const at::Tensor& advantages, const at::Tensor& mask,
                       const PolicyLossOptions& options, const LossDenominators& denominators);

}  // namespace muoncore::rl
