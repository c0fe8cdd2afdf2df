#include "muoncore/muon/reference.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <vector>

#include "muoncore/core/check.h"

namespace muoncore::muon::reference {
namespace {

struct Matrix {
  int64_t rows, cols;
  std::vector<double> at;
  Matrix(int64_t r, int64_t c) : rows(r), cols(c), at(static_cast<size_t>(r * c)) {}
  double& operator()(int64_t i, int64_t j) { return at[static_cast<size_t>(i * cols + j)]; }
  double operator()(int64_t i, int64_t j) const { return at[static_cast<size_t>(i * cols + j)]; }
};

Matrix transpose(const Matrix& x) {
  Matrix out(x.cols, x.rows);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.cols; ++j) out(j, i) = x(i, j);
  return out;
}

// x y^T
Matrix product_transposed(const Matrix& x, const Matrix& y) {
  Matrix out(x.rows, y.rows);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < y.rows; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < x.cols; ++k) sum += x(i, k) * y(j, k);
      out(i, j) = sum;
    }
  return out;
}

Matrix product(const Matrix& x, const Matrix& y) { return product_transposed(x, transpose(y)); }

void scale(Matrix& x, double factor) {
  for (double& v : x.at) v *= factor;
}

// Frobenius norm, without overflow or underflow.
double norm(const Matrix& x) {
  double largest = 0, sum = 0;
  for (double v : x.at) largest = std::isnan(v) ? v : std::max(largest, std::abs(v));
  if (largest == 0 || !std::isfinite(largest)) return largest;
  for (double v : x.at) sum += (v / largest) * (v / largest);
  return largest * std::sqrt(sum);
}

void scale_rows_aol(Matrix& x) {
  const Matrix gram = product_transposed(x, x);
  for (int64_t i = 0; i < x.rows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < x.rows; ++j) sum += std::abs(gram(i, j));
    if (sum > 0)
      for (int64_t j = 0; j < x.cols; ++j) x(i, j) /= std::sqrt(sum);
  }
}

Matrix orthogonalize(Matrix x, const NewtonSchulzOptions& o) {
  const bool transposed = o.transpose.value_or(x.rows > x.cols);
  if (transposed) x = transpose(x);
  const double length = norm(x);
  const double divisor = o.eps ? std::max(length, *o.eps) : length;
  for (double& v : x.at) v = divisor == 0 ? 0 : v / divisor;
  if (!o.upstream_exact && o.coefficient_type != "custom") {
    const CoefficientSet& set = coefficient_set(o.coefficient_type);
    if (set.needs_aol_scaling) scale_rows_aol(x);
    scale(x, 1 / set.safety);
  }
  for (const Coefficients& k : resolve_coefficients(o)) {
    const Matrix gram = product_transposed(x, x);
    Matrix poly = product(gram, gram);
    for (size_t i = 0; i < poly.at.size(); ++i) poly.at[i] = k.b * gram.at[i] + k.c * poly.at[i];
    Matrix next = product(poly, x);
    for (size_t i = 0; i < next.at.size(); ++i) next.at[i] += k.a * x.at[i];
    x = std::move(next);
  }
  return transposed ? transpose(x) : x;
}

}  // namespace

at::Tensor newton_schulz(const at::Tensor& input, const NewtonSchulzOptions& options) {
  check(input.dim() == 2 || input.dim() == 3, "the reference takes 2 or 3 dimensions, got {}",
        input.dim());
  at::Tensor x = input.detach().to(at::kDouble).contiguous();
  at::Tensor out = at::empty(x.sizes(), x.options());
  const int64_t rows = x.size(-2), cols = x.size(-1), size = rows * cols;
  for (int64_t start = 0; start < x.numel(); start += size) {
    Matrix slice(rows, cols);
    std::copy_n(x.const_data_ptr<double>() + start, size, slice.at.begin());
    const Matrix result = orthogonalize(std::move(slice), options);
    std::copy_n(result.at.begin(), size, out.mutable_data_ptr<double>() + start);
  }
  return out;
}

at::Tensor polar_factor(const at::Tensor& x, double rcond) {
  auto [u, s, vh] = at::linalg_svd(x.detach().to(at::kDouble), /*full_matrices=*/false);
  at::Tensor keep = s.gt(s.amax(-1, true) * rcond).to(at::kDouble);
  return at::matmul(u * keep.unsqueeze(-2), vh);
}

}  // namespace muoncore::muon::reference
