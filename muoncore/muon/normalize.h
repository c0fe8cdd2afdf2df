// The normalization before Newton-Schulz: every matrix divided by its Frobenius norm, taken in fp32
// (fp64 for fp64).
#pragma once

#include <ATen/core/Tensor.h>

namespace muoncore::muon {

// x: [..., rows, cols], fp32 or fp64, any strides, not empty. Returns a new tensor with x's
// strides.

// x / norm for every scale that the dtype can hold, subnormal to largest; zero stays zero. Each
// slice is first divided by a power of two near its largest element, which changes no bit of the
// result where the plain quotient would not underflow or overflow.
at::Tensor normalize_scale_free(const at::Tensor& x);

// Upstream's x / max(norm, eps) (Emerging-Optimizers 0.3.0): an update shrinks when norm < eps, and
// vanishes when the norm overflows.
at::Tensor normalize_with_eps(const at::Tensor& x, double eps);

// Row scaling by AOL: s_i = 1 / sqrt(sum_j |x x^T|_ij), x <- diag(s) x, which puts every singular
// value in [0, 1]. x: [..., rows, cols] normalized, rows <= cols; in place. Source: arXiv
// 2512.04632.
void scale_rows_aol_(const at::Tensor& x_);

}  // namespace muoncore::muon
