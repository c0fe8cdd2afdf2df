// Second moments of the orthogonalized update (adaptive Muons), applied before the shape scale. No
// bias correction. Source: Emerging-Optimizers 0.3.0 `AdaptiveMuon`; AdaMuon arXiv 2507.11005,
// NorMuon arXiv 2510.05491, NAMO.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

namespace muoncore::muon {

enum class SecondMoment {
  kNone,
  kAdaMuon,  // v <- lerp(v, O^2, 1 - beta2);  O / (sqrt(v) + eps)
  kNorMuon,  // v <- lerp(v, mean of O^2 over the longer side, 1 - beta2);  W = O / sqrt(max(v,
             // eps));  W ||O|| / ||W||
  kNamo,     // v <- lerp(v, ||G||^2, 1 - beta2);  O ||U|| / (sqrt(v) + eps);  v in fp64, where the
             // square of a norm that fp32 holds cannot overflow
};
SecondMoment parse_second_moment(
    std::string_view text);  // none, adamuon, normuon, namo; throws, naming the words

// Shape of v for one logical matrix, or batch of them, of this shape: [..., rows, cols], [...,
// rows, 1] or [..., 1, cols], or [..., 1, 1].
std::vector<int64_t> second_moment_shape(SecondMoment method, at::IntArrayRef matrix);

// Of v: fp64 for namo, else that of the update.
at::ScalarType second_moment_dtype(SecondMoment method, at::ScalarType update);

// Updates v and rewrites update_, both in place. direction is what was orthogonalized (U),
// grad_norm the norm of the gradient of each matrix, [..., 1, 1]; only namo reads the two.
void apply_second_moment_(const at::Tensor& update_, const at::Tensor& v_, SecondMoment method,
                          double beta2, double eps, const at::Tensor& direction,
                          const at::Tensor& grad_norm);

// Frobenius norm of each matrix, [..., 1, 1], in fp64: it neither overflows nor underflows.
at::Tensor matrix_norm(const at::Tensor& x);

}  // namespace muoncore::muon
