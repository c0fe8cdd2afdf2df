#include "muoncore/muon/newton_schulz.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>

#include "muoncore/core/check.h"
#include "muoncore/muon/coefficient_guard.h"
#include "muoncore/muon/normalize.h"

namespace muoncore::muon {
namespace {

// The greatest singular value that a normalized matrix can show the iteration: rounding each
// element to bf16 moves the norm by up to 2^-8, the products add as much again.
constexpr double kLargestFp32 = 1.00001;
constexpr double kLargestBf16 = 1.008;

void product_(at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  out.dim() == 2 ? at::mm_out(out, left, right) : at::bmm_out(out, left, right);
}

// out <- beta * add + alpha * left right
void add_product_(at::Tensor& out, double beta, const at::Tensor& add, double alpha,
                  const at::Tensor& left, const at::Tensor& right) {
  out.dim() == 2 ? at::addmm_out(out, add, left, right, beta, alpha)
                 : at::baddbmm_out(out, add, left, right, beta, alpha);
}

// x: [..., n, m], n <= m unless transposition was forced. Uses x as one of its two buffers.
at::Tensor iterate(at::Tensor x, const std::vector<Coefficients>& steps) {
  std::vector<int64_t> square(x.sizes().begin(), x.sizes().end());
  square.back() = square[square.size() - 2];
  at::Tensor gram = at::empty(square, x.options());
  at::Tensor poly = at::empty(square, x.options());
  at::Tensor next = at::empty_like(x);
  for (const Coefficients& k : steps) {
    product_(gram, x, x.mT());
    if (k.c == 0) {
      add_product_(next, k.a, x, k.b, gram, x);
    } else {
      add_product_(poly, k.b, gram, k.c, gram, gram);
      add_product_(next, k.a, x, 1.0, poly, x);
    }
    std::swap(x, next);
  }
  return x;
}

at::ScalarType norm_dtype(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void check_input(const at::Tensor& x) {
  check(
      x.dim() == 2 || x.dim() == 3,
      "newton_schulz needs a matrix [rows, cols] or a batch [batch, rows, cols], got {} dimensions",
      x.dim());
  check(at::isFloatingType(x.scalar_type()), "newton_schulz needs floating-point input, got {}",
        at::toString(x.scalar_type()));
}

}  // namespace

MatmulPrecision parse_matmul_precision(std::string_view text) {
  if (text == "highest") return MatmulPrecision::kHighest;
  if (text == "high") return MatmulPrecision::kHigh;
  if (text == "medium") return MatmulPrecision::kMedium;
  fail("matmul precision '{}' is not one of highest, high, medium", text);
}

std::vector<Coefficients> resolve_coefficients(const NewtonSchulzOptions& o) {
  const bool custom = o.coefficient_type == "custom";
  check(custom || o.custom_coefficients.empty(),
        "custom coefficients are given, but the coefficient type is '{}': set it to custom",
        o.coefficient_type);
  check(!custom || !o.custom_coefficients.empty(),
        "coefficient type custom needs custom coefficients: at least one (a, b, c) triple");
  if (custom) {
    auto steps = iterate_coefficients(o.custom_coefficients, o.custom_mode, o.steps);
    if (!o.upstream_exact) {
      const double largest = o.precision == MatmulPrecision::kMedium ? kLargestBf16 : kLargestFp32;
      check_singular_value_map(steps, largest,
                               fmt::format("custom coefficients at {} steps", o.steps));
    }
    return steps;
  }
  const CoefficientSet& set = coefficient_set(o.coefficient_type);
  auto steps = iterate_coefficients(set.steps, set.mode, o.steps);
  check(set.exact_steps == 0 || set.exact_steps == o.steps,
        "coefficient type {} is made for exactly {} steps, got {}", set.name, set.exact_steps,
        o.steps);
  if (!o.upstream_exact) {
    check(
        !o.eps || !set.needs_aol_scaling,
        "coefficient type {} scales rows after the normalization, which undoes eps: leave eps out",
        set.name);
    const double largest = o.precision == MatmulPrecision::kMedium ? kLargestBf16 : kLargestFp32;
    check_singular_value_map(steps, largest / set.safety,
                             fmt::format("coefficient type {} at {} steps", set.name, o.steps));
  }
  return steps;
}

at::Tensor normalize_for_iteration(const at::Tensor& input, const NewtonSchulzOptions& o) {
  at::Tensor x = input.to(norm_dtype(input));
  if (x.dim() == 3)
    x = x.contiguous();  // a batched product would copy strided slices in every step
  x = o.eps ? normalize_with_eps(x, *o.eps) : normalize_scale_free(x);
  if (o.upstream_exact || o.coefficient_type == "custom") return x;
  const CoefficientSet& set = coefficient_set(o.coefficient_type);
  if (set.needs_aol_scaling) scale_rows_aol_(x);
  if (set.safety != 1.0) x.div_(set.safety);
  return x;
}

at::Tensor newton_schulz(const at::Tensor& input, const NewtonSchulzOptions& o) {
  return newton_schulz(input, o, resolve_coefficients(o));
}

at::Tensor newton_schulz(const at::Tensor& input, const NewtonSchulzOptions& o,
                         const std::vector<Coefficients>& steps) {
  at::NoGradGuard no_grad;
  check_input(input);
  if (input.numel() == 0) return at::zeros_like(input);
  const bool transposed = o.transpose.value_or(input.size(-2) > input.size(-1));
  at::Tensor x = normalize_for_iteration(transposed ? input.mT() : input, o);
  if (o.precision == MatmulPrecision::kMedium) x = x.to(at::kBFloat16);
  x = iterate(std::move(x), steps);
  return (transposed ? x.mT() : x).to(input.scalar_type());
}

}  // namespace muoncore::muon
