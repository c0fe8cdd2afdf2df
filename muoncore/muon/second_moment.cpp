#include "muoncore/muon/second_moment.h"

#include <ATen/ops/linalg_vector_norm.h>

#include "muoncore/muon/words.h"

namespace muoncore::muon {
namespace {

constexpr Words<SecondMoment, 4> kMethods{{{"none", SecondMoment::kNone},
                                           {"adamuon", SecondMoment::kAdaMuon},
                                           {"normuon", SecondMoment::kNorMuon},
                                           {"namo", SecondMoment::kNamo}}};

bool averages_columns(at::IntArrayRef matrix) { return matrix[matrix.size() - 2] >= matrix.back(); }

void normalize_neurons_(const at::Tensor& update_, const at::Tensor& v_, double beta2, double eps) {
  const int64_t side = averages_columns(update_.sizes()) ? -1 : -2;
  v_.lerp_(update_.square().mean(at::IntArrayRef({side}), /*keepdim=*/true), 1 - beta2);
  at::Tensor before = matrix_norm(update_);
  update_.mul_(v_.clamp_min(eps).rsqrt());
  update_.mul_((before / matrix_norm(update_).clamp_min(eps)).to(update_.scalar_type()));
}

}  // namespace

SecondMoment parse_second_moment(std::string_view text) {
  return parse_word("second-moment method", text, kMethods);
}

std::vector<int64_t> second_moment_shape(SecondMoment method, at::IntArrayRef matrix) {
  std::vector<int64_t> shape = matrix.vec();
  const size_t rows = shape.size() - 2, cols = shape.size() - 1;
  if (method == SecondMoment::kNamo ||
      (method == SecondMoment::kNorMuon && averages_columns(matrix)))
    shape[cols] = 1;
  if (method == SecondMoment::kNamo ||
      (method == SecondMoment::kNorMuon && !averages_columns(matrix)))
    shape[rows] = 1;
  return shape;
}

at::ScalarType second_moment_dtype(SecondMoment method, at::ScalarType update) {
  return method == SecondMoment::kNamo ? at::kDouble : update;
}

at::Tensor matrix_norm(const at::Tensor& x) {
  return at::linalg_vector_norm(x, 2, at::IntArrayRef({-2, -1}), /*keepdim=*/true, at::kDouble);
}

void apply_second_moment_(const at::Tensor& update_, const at::Tensor& v_, SecondMoment method,
                          double beta2, double eps, const at::Tensor& direction,
                          const at::Tensor& grad_norm) {
  switch (method) {
    case SecondMoment::kNone:
      return;
    case SecondMoment::kAdaMuon:
      v_.lerp_(update_.square(), 1 - beta2);
      update_.div_(v_.sqrt().add_(eps));
      return;
    case SecondMoment::kNorMuon:
      return normalize_neurons_(update_, v_, beta2, eps);
    case SecondMoment::kNamo:
      v_.lerp_(grad_norm.square(), 1 - beta2);
      update_.mul_((matrix_norm(direction) / v_.sqrt().add_(eps)).to(update_.scalar_type()));
      return;
  }
}

}  // namespace muoncore::muon
