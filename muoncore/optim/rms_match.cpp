#include "muoncore/optim/rms_match.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "muoncore/muon/words.h"

namespace muoncore::optim {
namespace {

constexpr int64_t kSampledRows = 8;
constexpr muon::Words<AdamWMatch, 3> kWords{{{"none", AdamWMatch::kNone},
                                             {"bias_corrected", AdamWMatch::kBiasCorrected},
                                             {"measured", AdamWMatch::kMeasured}}};

}  // namespace

AdamWMatch parse_adamw_match(std::string_view text) {
  return muon::parse_word("AdamW match", text, kWords);
}

std::vector<int64_t> sampled_rows(int64_t rows) {
  const int64_t count = std::min(rows, kSampledRows);
  std::vector<int64_t> out;
  for (int64_t k = 0; k < count; ++k) out.push_back((2 * k + 1) * rows / (2 * count));
  return out;
}

AdamWShadow make_shadow(at::IntArrayRef shape, at::TensorOptions options) {
  std::vector<int64_t> sample = shape.vec();
  sample[sample.size() - 2] = static_cast<int64_t>(sampled_rows(sample[sample.size() - 2]).size());
  options = options.dtype(at::kDouble);
  return {at::zeros(sample, options), at::zeros(sample, options)};
}

SquareSum advance_shadow_(const AdamWShadow& shadow_, const at::Tensor& grad, double grad_scale,
                          int64_t step, const ShadowOptions& o) {
  const at::Tensor rows = at::tensor(sampled_rows(grad.size(-2)), at::kLong).to(grad.device());
  const at::Tensor g = at::index_select(grad, -2, rows).to(at::kDouble).mul(grad_scale);
  shadow_.exp_avg.lerp_(g, 1.0 - o.beta1);
  shadow_.exp_avg_sq.mul_(o.beta2).addcmul_(g, g, 1.0 - o.beta2);
  const double power = static_cast<double>(step);
  const double correction1 = 1.0 - std::pow(o.beta1, power);
  const double correction2 = 1.0 - std::pow(o.beta2, power);
  const at::Tensor denominator = shadow_.exp_avg_sq.div(correction2).sqrt_().add_(o.eps);
  const at::Tensor update = shadow_.exp_avg.div(correction1).div_(denominator);
  return {update.square().sum().item<double>(), update.numel()};
}

}  // namespace muoncore::optim
