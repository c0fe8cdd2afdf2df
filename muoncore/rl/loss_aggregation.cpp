#include "muoncore/rl/loss_aggregation.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::rl {
namespace {

void check_positive(double value, const char* name, LossAggMode mode) {
  check(value > 0.0,
        "the loss has {} = {}, but loss_agg_mode {} divides by it: it must be positive", name,
        value, loss_agg_mode_names()[static_cast<size_t>(mode)]);
}

}  // namespace

const std::vector<std::string>& loss_agg_mode_names() {
  static const std::vector<std::string> names = {"token-mean", "token-sum", "seq-mean-token-sum",
                                                 "seq-mean-token-mean", "seq-mean-token-sum-norm"};
  return names;
}

LossAggMode parse_loss_agg_mode(std::string_view name) {
  const auto& names = loss_agg_mode_names();
  auto found = std::find(names.begin(), names.end(), name);
  check(found != names.end(), "loss_agg_mode is '{}': allowed are {}; the nearest is '{}'", name,
        fmt::join(names, ", "), nearest_name(name, names));
  return static_cast<LossAggMode>(found - names.begin());
}

at::Tensor aggregate_loss(const at::Tensor& losses, const at::Tensor& mask, LossAggMode mode,
                          const LossDenominators& denominators) {
  check(losses.dim() == 2 && losses.sizes() == mask.sizes(),
        "losses of shape {} came with a mask of shape {}: both must be [rows, tokens]",
        fmt::join(losses.sizes(), "x"), fmt::join(mask.sizes(), "x"));
  at::Tensor chosen = mask.to(at::kBool);
  at::Tensor kept = at::where(chosen, losses, at::zeros({}, losses.options()));
  if (mode == LossAggMode::kTokenSum) return kept.sum();
  if (mode == LossAggMode::kTokenMean) {
    check_positive(denominators.global_tokens, "global_tokens", mode);
    return kept.sum() / denominators.global_tokens;
  }
  check_positive(denominators.global_batch_size, "global_batch_size", mode);
  at::Tensor rows = kept.sum(-1);
  if (mode == LossAggMode::kSeqMeanTokenMean)
    rows = rows / (chosen.sum(-1).to(losses.scalar_type()) + 1e-8);
  double divisor = denominators.global_batch_size;
  if (mode == LossAggMode::kSeqMeanTokenSumNorm) {
    check_positive(denominators.loss_scale_factor, "loss_scale_factor", mode);
    divisor *= denominators.loss_scale_factor;
  }
  return rows.sum() / divisor;
}

}  // namespace muoncore::rl
