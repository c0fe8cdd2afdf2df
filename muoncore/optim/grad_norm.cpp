#include "muoncore/optim/grad_norm.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>

#include <cmath>
#include <limits>

#include <fmt/ranges.h>

#include "muoncore/core/check.h"
#include "muoncore/optim/chunked_sum.h"

namespace muoncore::optim {
namespace {

// Sum over one tensor of |x * scale|^p. A NaN or an infinity makes it NaN or infinite.
double power_sum(const at::Tensor& grad, double p, double scale) {
  double sum = 0.0;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, grad.scalar_type(), "power_sum", [&] {
    const auto* x = grad.const_data_ptr<scalar_t>();
    auto scaled = [&](int64_t i) { return std::abs(static_cast<double>(x[i]) * scale); };
    auto add_up = [&](const auto& term) {
      sum = chunked_sum(grad.numel(),
                        [&](int64_t begin, int64_t end) { return lane_sum(begin, end, term); });
    };
    if (p == 1.0)
      add_up(scaled);
    else
      add_up([&](int64_t i) { return std::pow(scaled(i), p); });
  });
  return sum;
}

// What the sums read: dense, contiguous, on the CPU. A gradient elsewhere or with other strides is
// copied.
at::Tensor readable(const at::Tensor& grad) {
  check(grad.layout() == at::kStrided, "a sparse gradient of shape [{}] has no place in grad_norm",
        fmt::join(grad.sizes(), ", "));
  check(at::isFloatingType(grad.scalar_type()) && !at::isFloat8Type(grad.scalar_type()),
        "grad_norm takes fp32, fp64, bf16 and fp16, not {}", c10::toString(grad.scalar_type()));
  return grad.detach().to(at::kCPU).contiguous();
}

// The largest magnitude of all; NaN when any is NaN (at::max passes it on).
double largest(const std::vector<at::Tensor>& grads) {
  double result = 0.0;
  for (const auto& grad : grads) {
    if (grad.numel() == 0) continue;
    const double value = at::max(at::abs(readable(grad))).item<double>();
    if (std::isnan(value)) return value;
    result = std::max(result, value);
  }
  return result;
}

double total(const std::vector<at::Tensor>& grads, double p, double scale) {
  double sum = 0.0;
  for (const auto& grad : grads) sum += power_sum(readable(grad), p, scale);
  return sum;
}

}  // namespace

GradNorm grad_norm(const std::vector<at::Tensor>& grads, double norm_type) {
  check(norm_type > 0.0, "norm_type {}: allowed are numbers above 0 and infinity", norm_type);
  at::NoGradGuard no_grad;
  if (norm_type == 2.0) {
    ExactSum sum;
    for (const auto& grad : grads) add_squares(sum, grad);
    return {sum.root(), sum.finite()};
  }
  if (!std::isinf(norm_type)) {
    const double sum = total(grads, norm_type, 1.0);
    const bool in_range = sum >= std::numeric_limits<double>::min();
    if (std::isfinite(sum) && in_range) return {std::pow(sum, 1.0 / norm_type), true};
  }
  // Either the largest value is what is asked for, or the sum left fp64's range: then it says
  // whether the gradients are at fault or only their powers, and is the scale that brings these
  // back.
  const double top = largest(grads);
  if (!std::isfinite(top)) return {top, false};
  if (std::isinf(norm_type) || top == 0.0) return {top, true};
  const double sum = total(grads, norm_type, 1.0 / top);
  return {top * std::pow(sum, 1.0 / norm_type), true};
}

void add_squares(ExactSum& sum, const at::Tensor& grad) { sum.add_squares(readable(grad)); }

double clip_coefficient(double norm, double clip_grad) {
  check(clip_grad >= 0.0, "clip_grad {}: allowed are numbers from 0 (off)", clip_grad);
  if (clip_grad == 0.0) return 1.0;
  return std::min(1.0, clip_grad / (norm + 1e-6));
}

}  // namespace muoncore::optim
