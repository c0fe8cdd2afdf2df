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

// Every slice of x through `stage`.
template <typename Stage>
at::Tensor per_slice(const at::Tensor& input, Stage stage) {
  check(input.dim() == 2 || input.dim() == 3, "the reference takes 2 or 3 dimensions, got {}",
        input.dim());
  at::Tensor x = input.detach().to(at::kDouble).contiguous();
  at::Tensor out = at::empty(x.sizes(), x.options());
  const int64_t rows = x.size(-2), cols = x.size(-1), size = rows * cols;
  for (int64_t start = 0; start < x.numel(); start += size) {
    Matrix slice(rows, cols);
    std::copy_n(x.const_data_ptr<double>() + start, size, slice.at.begin());
    const Matrix result = stage(std::move(slice));
    std::copy_n(result.at.begin(), size, out.mutable_data_ptr<double>() + start);
  }
  return out;
}

std::vector<double> row_squares(const Matrix& x) {
  std::vector<double> out(static_cast<size_t>(x.rows), 0.0);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.cols; ++j) out[static_cast<size_t>(i)] += x(i, j) * x(i, j);
  return out;
}

void divide_rows(Matrix& x, const std::vector<double>& squares, double eps) {
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.cols; ++j)
      x(i, j) /= std::sqrt(squares[static_cast<size_t>(i)] + eps);
}

void divide_columns(Matrix& x, const std::vector<double>& squares, double eps) {
  Matrix turned = transpose(x);
  divide_rows(turned, squares, eps);
  x = transpose(turned);
}

Matrix equilibrate(Matrix x, bool rows, bool columns) {
  const double rms = norm(x) / std::sqrt(static_cast<double>(x.at.size()));
  if (rms == 0) return x;
  for (double& v : x.at) v /= rms;
  const auto of_rows = row_squares(x), of_columns = row_squares(transpose(x));
  if (rows) divide_rows(x, of_rows, 1e-8);
  if (columns) divide_columns(x, of_columns, 1e-8);
  return x;
}

Matrix renormalize(Matrix x, const std::vector<bool>& rows_then) {
  for (bool rows : rows_then) {
    if (rows)
      divide_rows(x, row_squares(x), 1e-7);
    else
      divide_columns(x, row_squares(transpose(x)), 1e-7);
  }
  return x;
}

Matrix to_frobenius(Matrix x) {
  const double length = norm(x), due = std::sqrt(static_cast<double>(std::min(x.rows, x.cols)));
  for (double& v : x.at) v = length > 1e-7 ? v * due / length : 0;
  return x;
}

}  // namespace

at::Tensor newton_schulz(const at::Tensor& input, const NewtonSchulzOptions& options) {
  return per_slice(input, [&](Matrix x) { return orthogonalize(std::move(x), options); });
}

at::Tensor pre_transform(const at::Tensor& input, PreTransform transform) {
  return per_slice(input, [&](Matrix x) {
    if (transform == PreTransform::kNone) return x;
    if (transform == PreTransform::kSign) {
      for (double& v : x.at) v = v > 0 ? 1 : v < 0 ? -1 : 0;
      return x;
    }
    return equilibrate(std::move(x), transform != PreTransform::kMuonEqColumns,
                       transform != PreTransform::kMuonEqRows);
  });
}

at::Tensor post_transform(const at::Tensor& input, PostTransform transform) {
  return per_slice(input, [&](Matrix x) {
    switch (transform) {
      case PostTransform::kNone:
        return x;
      case PostTransform::kRows:
        return renormalize(std::move(x), {true});
      case PostTransform::kColumns:
        return renormalize(std::move(x), {false});
      case PostTransform::kColumnsRows:
        return renormalize(std::move(x), {false, true});
      case PostTransform::kRowsColumns:
        return renormalize(std::move(x), {true, false});
      case PostTransform::kFrobenius:
        return to_frobenius(std::move(x));
    }
    fail("post-transform {} does not exist", static_cast<int>(transform));
  });
}

at::Tensor polar_factor(const at::Tensor& x, double rcond) {
  auto [u, s, vh] = at::linalg_svd(x.detach().to(at::kDouble), /*full_matrices=*/false);
  at::Tensor keep = s.gt(s.amax(-1, true) * rcond).to(at::kDouble);
  return at::matmul(u * keep.unsqueeze(-2), vh);
}

}  // namespace muoncore::muon::reference
