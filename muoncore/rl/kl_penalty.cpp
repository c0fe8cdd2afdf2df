#include "muoncore/rl/kl_penalty.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/rl/loss_aggregation.h"

namespace muoncore::rl {
namespace {

constexpr double kMaxDifference = 20.0;
constexpr double kMaxK3 = 10.0;

constexpr std::array<std::pair<const char*, KlEstimator>, 7> kNames = {
    {{"kl", KlEstimator::kK1},
     {"k1", KlEstimator::kK1},
     {"abs", KlEstimator::kAbs},
     {"mse", KlEstimator::kK2},
     {"k2", KlEstimator::kK2},
     {"low_var_kl", KlEstimator::kK3},
     {"k3", KlEstimator::kK3}}};

at::Tensor estimate(const at::Tensor& log_probs, const at::Tensor& ref, KlEstimator estimator) {
  switch (estimator) {
    case KlEstimator::kK1:
      return log_probs - ref;
    case KlEstimator::kAbs:
      return (log_probs - ref).abs();
    case KlEstimator::kK2:
      return 0.5 * (log_probs - ref).square();
    case KlEstimator::kK3: {
      at::Tensor d = (ref - log_probs).clamp(-kMaxDifference, kMaxDifference);
      return (d.exp() - d - 1.0).clamp(-kMaxK3, kMaxK3);
    }
  }
  fail("KL estimator {} does not exist", static_cast<int>(estimator));
}

}  // namespace

const std::vector<std::string>& kl_penalty_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const char* suffix : {"", "+"})
      for (const auto& [name, estimator] : kNames) all.push_back(std::string(name) + suffix);
    return all;
  }();
  return names;
}

KlPenalty parse_kl_penalty(std::string_view name) {
  bool straight_through = name.ends_with('+');
  std::string_view base = name.substr(0, name.size() - (straight_through ? 1 : 0));
  for (const auto& [known, estimator] : kNames)
    if (base == known) return {estimator, straight_through};
  fail("the KL estimator is '{}': allowed are {}; the nearest is '{}'", name,
       fmt::join(kl_penalty_names(), ", "), nearest_name(name, kl_penalty_names()));
}

at::Tensor kl_penalty(const at::Tensor& log_probs, const at::Tensor& ref_log_probs,
                      const KlPenalty& penalty) {
  at::Tensor ref = ref_log_probs.detach();
  at::Tensor value = estimate(log_probs, ref, penalty.value);
  if (!penalty.straight_through) return value;
  at::Tensor k2 = estimate(log_probs, ref, KlEstimator::kK2);
  return k2 - k2.detach() + value.detach();
}

KlReward kl_in_reward(const std::vector<double>& scores, const at::Tensor& old_log_probs,
                      const at::Tensor& ref_log_probs, const at::Tensor& mask,
                      const KlPenalty& penalty, double kl_coef) {
  check(old_log_probs.dim() == 2 && old_log_probs.size(0) == static_cast<int64_t>(scores.size()),
        "{} scores came with log-probabilities of shape {}", scores.size(),
        fmt::join(old_log_probs.sizes(), "x"));
  at::NoGradGuard no_grad;
  at::Tensor chosen = mask.to(at::kBool);
  at::Tensor kl = kl_penalty(old_log_probs.to(at::kDouble), ref_log_probs.to(at::kDouble), penalty)
                      .masked_fill(chosen.logical_not(), 0.0);
  at::Tensor sums = kl.sum(-1).cpu();
  at::Tensor lengths = chosen.sum(-1).to(at::kDouble).cpu();
  const double* sum = sums.const_data_ptr<double>();
  const double* length = lengths.const_data_ptr<double>();
  KlReward reward;
  for (size_t i = 0; i < scores.size(); ++i) {
    reward.scores.push_back(scores[i] - kl_coef * sum[i]);
    reward.mean_kl += sum[i] / (length[i] + 1e-8) / static_cast<double>(scores.size());
  }
  return reward;
}

}  // namespace muoncore::rl
