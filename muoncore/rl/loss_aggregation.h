// From a loss per token to one number, in verl's five ways (`actor.loss_agg_mode`).
// Source: verl 0.9.1, core_algos.agg_loss (reference/rl.md section 2.3).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

namespace muoncore::rl {

enum class LossAggMode {
  kTokenMean,            // sum over tokens / global_tokens
  kTokenSum,             // sum over tokens
  kSeqMeanTokenSum,      // sum over rows of the row's sum / global_batch_size
  kSeqMeanTokenMean,     // sum over rows of the row's mean / global_batch_size
  kSeqMeanTokenSumNorm,  // kSeqMeanTokenSum / loss_scale_factor
};

const std::vector<std::string>& loss_agg_mode_names();   // verl's names, in the order of the enum
LossAggMode parse_loss_agg_mode(std::string_view name);  // throws on another name

// The numbers of the whole (global) mini-batch. Every micro-batch divides by these, so that the
// losses of micro-batches add up to the loss of the mini-batch, however it is cut.
struct LossDenominators {
  double global_tokens = 0;      // response tokens (sum of the mask)
  double global_batch_size = 0;  // rows; a row of zero advantage counts
  // only for kSeqMeanTokenSumNorm; verl's default: the padded response width
  double loss_scale_factor = 0;
};

// losses [B, T], mask [B, T] (0 or 1, any dtype) -> scalar. Values under a mask of 0 are ignored,
// NaN included, and get a gradient of zero. Throws when the denominator that the mode needs is not
// positive.
at::Tensor aggregate_loss(const at::Tensor& losses, const at::Tensor& mask, LossAggMode mode,
                          const LossDenominators& denominators);

}  // namespace muoncore::rl
