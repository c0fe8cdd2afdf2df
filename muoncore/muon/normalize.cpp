#include "muoncore/muon/normalize.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/ldexp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>

namespace muoncore::muon {
namespace {

at::Tensor slice_norm(const at::Tensor& x) {
  return at::linalg_vector_norm(x, 2, at::IntArrayRef({-2, -1}), /*keepdim=*/true);
}

}  // namespace

at::Tensor normalize_scale_free(const at::Tensor& x) {
  at::Tensor largest = at::amax(x.abs(), {-2, -1}, /*keepdim=*/true);
  auto [mantissa, exponent] =
      at::frexp(largest);  // largest = mantissa * 2^exponent, mantissa in [0.5, 1)
  at::Tensor power = at::ldexp(at::ones_like(largest), exponent - 1);  // 2^exponent may be infinite
  at::Tensor out = x.div(power);
  // The largest element now lies in [1, 2), so a norm below 1 belongs to an all-zero slice.
  out.div_(slice_norm(out).clamp_min_(1.0));
  return out;
}

at::Tensor normalize_with_eps(const at::Tensor& x, double eps) {
  return x.div(slice_norm(x).clamp_min_(eps));
}

void scale_rows_aol_(const at::Tensor& x_) {
  at::Tensor row_sums = at::matmul(x_, x_.mT()).abs_().sum(-1, /*keepdim=*/true);
  x_.mul_(row_sums.clamp_min_(1e-30).rsqrt_());
}

}  // namespace muoncore::muon
