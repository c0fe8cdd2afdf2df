#include "muoncore/rl/policy_loss.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::rl {
namespace {

constexpr double kMaxLogRatio = 20.0;          // verl's clamp of log new - log old
constexpr double kMaxSequenceLogRatio = 10.0;  // and of GSPO's log ratio, from above

// All tensors [B, T], zero where `mask` (bool) is false.
struct Inputs {
  at::Tensor log_probs, old_log_probs, advantages, mask;
};

struct TokenLosses {
  at::Tensor losses;         // [B, T]
  at::Tensor clipped;        // [B, T] bool
  at::Tensor clipped_lower;  // [B, T] bool
  at::Tensor log_ratio;      // [B, T]
};

at::Tensor none_clipped(const Inputs& in) { return at::zeros_like(in.mask); }

TokenLosses vanilla_losses(const Inputs& in, const PolicyLossOptions& o) {
  at::Tensor log_ratio = (in.log_probs - in.old_log_probs).clamp(-kMaxLogRatio, kMaxLogRatio);
  at::Tensor ratio = log_ratio.exp();
  at::Tensor plain = -in.advantages * ratio;
  at::Tensor clipped =
      -in.advantages * ratio.clamp(1.0 - o.clip_ratio_low, 1.0 + o.clip_ratio_high);
  at::Tensor losses = at::maximum(plain, clipped);
  at::Tensor ceiling = -in.advantages * o.clip_ratio_c;
  at::Tensor negative = in.advantages < 0;
  at::Tensor held = losses.gt(ceiling).logical_and(negative);
  return {at::where(negative, at::minimum(ceiling, losses), losses), clipped > plain, held,
          log_ratio};
}

TokenLosses gspo_losses(const Inputs& in, const PolicyLossOptions& o) {
  at::Tensor log_ratio = (in.log_probs - in.old_log_probs).detach();
  at::Tensor lengths = in.mask.sum(-1).clamp_min(1).to(log_ratio.scalar_type());
  at::Tensor sequence = (log_ratio.sum(-1) / lengths).unsqueeze(-1);
  // Value: the sequence's ratio at each of its tokens. Gradient: through that token's own
  // log-probability.
  at::Tensor ratio =
      (in.log_probs - in.log_probs.detach() + sequence).clamp_max(kMaxSequenceLogRatio).exp();
  at::Tensor plain = -in.advantages * ratio;
  at::Tensor clipped =
      -in.advantages * ratio.clamp(1.0 - o.clip_ratio_low, 1.0 + o.clip_ratio_high);
  return {at::maximum(plain, clipped), clipped > plain, none_clipped(in), log_ratio};
}

TokenLosses cispo_losses(const Inputs& in, const PolicyLossOptions& o) {
  at::Tensor log_ratio =
      (in.log_probs - in.old_log_probs).detach().clamp(-kMaxLogRatio, kMaxLogRatio);
  at::Tensor ratio = log_ratio.exp();
  at::Tensor weight = ratio.clamp(1.0 - o.clip_ratio_low, 1.0 + o.clip_ratio_high);
  return {-weight * in.advantages * in.log_probs, weight.ne(ratio), none_clipped(in), log_ratio};
}

TokenLosses token_losses(const Inputs& in, const PolicyLossOptions& options) {
  switch (options.loss_mode) {
    case LossMode::kVanilla:
      return vanilla_losses(in, options);
    case LossMode::kGspo:
      return gspo_losses(in, options);
    case LossMode::kCispo:
      return cispo_losses(in, options);
  }
  fail("loss mode {} does not exist", static_cast<int>(options.loss_mode));
}

PolicyMetrics metrics_of(const TokenLosses& t, const at::Tensor& mask) {
  auto count = [&](const at::Tensor& flags) {
    return flags.logical_and(mask).sum().to(at::kDouble);
  };
  at::Tensor log_ratio = t.log_ratio.detach().masked_fill(mask.logical_not(), 0.0);
  at::Tensor sums = at::stack({mask.sum().to(at::kDouble), count(t.clipped), count(t.clipped_lower),
                               -log_ratio.sum(at::kDouble)})
                        .cpu();
  const double* s = sums.const_data_ptr<double>();
  return {.tokens = s[0], .clipped = s[1], .clipped_lower = s[2], .negative_log_ratio = s[3]};
}

void check_options(const PolicyLossOptions& o) {
  check(o.clip_ratio_low >= 0.0 && o.clip_ratio_high >= 0.0,
        "clip_ratio_low is {} and clip_ratio_high {}: neither may be negative", o.clip_ratio_low,
        o.clip_ratio_high);
  check(o.clip_ratio_c > 1.0, "clip_ratio_c is {}: the dual clip must lie above 1", o.clip_ratio_c);
}

Inputs masked_inputs(const at::Tensor& log_probs, const at::Tensor& old_log_probs,
                     const at::Tensor& advantages, const at::Tensor& mask) {
  check(log_probs.dim() == 2 && log_probs.sizes() == old_log_probs.sizes() &&
            log_probs.sizes() == mask.sizes(),
        "the policy loss got log_probs {}, old_log_probs {} and mask {}: all must be the same "
        "[rows, tokens]",
        fmt::join(log_probs.sizes(), "x"), fmt::join(old_log_probs.sizes(), "x"),
        fmt::join(mask.sizes(), "x"));
  check(
      advantages.sizes() == log_probs.sizes() ||
          advantages.sizes() == log_probs.sizes().slice(0, 1),
      "the policy loss got advantages {} for log_probs {}: one for each row, or one for each token",
      fmt::join(advantages.sizes(), "x"), fmt::join(log_probs.sizes(), "x"));
  at::Tensor chosen = mask.to(at::kBool);
  at::Tensor zero = at::zeros({}, log_probs.options());
  at::Tensor each = advantages.dim() == 1 ? advantages.unsqueeze(-1) : advantages;
  auto keep = [&](const at::Tensor& x) {
    return at::where(chosen, x.to(log_probs.scalar_type()), zero);
  };
  return {keep(log_probs), keep(old_log_probs.detach()), keep(each.detach()), chosen};
}

}  // namespace

const std::vector<std::string>& loss_mode_names() {
  static const std::vector<std::string> names = {"vanilla", "gspo", "cispo"};
  return names;
}

LossMode parse_loss_mode(std::string_view name) {
  const auto& names = loss_mode_names();
  auto found = std::find(names.begin(), names.end(), name);
  check(found != names.end(), "loss_mode is '{}': allowed are {}; the nearest is '{}'", name,
        fmt::join(names, ", "), nearest_name(name, names));
  return static_cast<LossMode>(found - names.begin());
}

PolicyMetrics& PolicyMetrics::operator+=(const PolicyMetrics& other) {
  tokens += other.tokens;
  clipped += other.clipped;
  clipped_lower += other.clipped_lower;
  negative_log_ratio += other.negative_log_ratio;
  return *this;
}

PolicyLoss policy_loss(const at::Tensor& log_probs, const at::Tensor& old_log_probs,
                       const at::Tensor& advantages, const at::Tensor& mask,
                       const PolicyLossOptions& options, const LossDenominators& denominators) {
  check_options(options);
  Inputs in = masked_inputs(log_probs, old_log_probs, advantages, mask);
  TokenLosses t = token_losses(in, options);
  return {aggregate_loss(t.losses, in.mask, options.loss_agg_mode, denominators),
          metrics_of(t, in.mask)};
}

}  // namespace muoncore::rl
