#include "muoncore/muon/gram.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "muoncore/core/check.h"
#include "muoncore/muon/normalize.h"

namespace muoncore::muon {
namespace {

bool restarts_at(const std::vector<int64_t>& restarts, size_t step) {
  return std::find(restarts.begin(), restarts.end(), static_cast<int64_t>(step)) != restarts.end();
}

// x: [batch, n, m]. All of gram, poly and factor are polynomials in the same matrix: symmetric, and
// in any order.
at::Tensor iterate_gram(at::Tensor x, const std::vector<Coefficients>& steps,
                        const std::vector<int64_t>& restarts) {
  at::Tensor gram = at::bmm(x, x.mT()), factor;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Coefficients& k = steps[i];
    if (i > 0 && restarts_at(restarts, i)) {
      x = at::bmm(factor, x);
      gram = at::bmm(x, x.mT());
      factor = at::Tensor();
    }
    at::Tensor poly = at::baddbmm(gram, gram, gram, k.b, k.c);
    at::Tensor next = factor.defined() ? at::baddbmm(factor, factor, poly, k.a) : poly.clone();
    if (!factor.defined()) next.diagonal(0, -2, -1).add_(k.a);
    factor = next;
    if (i + 1 == steps.size() || restarts_at(restarts, i + 1)) continue;
    at::Tensor half = at::baddbmm(gram, gram, poly, k.a);  // gram (a I + poly)
    gram = at::baddbmm(half, poly, half, k.a);             // (a I + poly) gram (a I + poly)
  }
  return at::bmm(factor, x);
}

}  // namespace

double restart_score(const std::vector<Coefficients>& steps, const std::vector<int64_t>& restarts) {
  constexpr int kPoints = 10000;
  constexpr double kRounding = -4e-4;
  std::vector<double> x(kPoints), r(kPoints), q(kPoints, 1.0);
  for (int j = 0; j < kPoints; ++j) {
    x[j] = std::pow(10.0, -10.0 * j / (kPoints - 1));
    r[j] = x[j] * x[j] + kRounding;
  }
  double score = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool restart = i > 0 && restarts_at(restarts, i);
    double least = std::numeric_limits<double>::infinity(), greatest = 0;
    for (int j = 0; j < kPoints; ++j) {
      if (restart) {
        x[j] *= q[j];
        r[j] = x[j] * x[j] + kRounding;
        q[j] = 1;
      }
      const double factor = steps[i].a + r[j] * (steps[i].b + steps[i].c * r[j]);
      q[j] *= factor;
      r[j] *= factor * factor;
      least = std::min(least, std::abs(q[j]));
      greatest = std::max(greatest, std::abs(q[j]));
    }
    score = std::max(score, greatest / least);
  }
  return score;
}

std::vector<int64_t> best_restarts(const std::vector<Coefficients>& steps) {
  std::vector<int64_t> best;
  double best_score = std::numeric_limits<double>::infinity();
  for (int64_t i = 1; i < static_cast<int64_t>(steps.size()); ++i) {
    const double score = restart_score(steps, {i});
    if (score >= best_score) continue;
    best_score = score;
    best = {i};
  }
  return best;
}

at::Tensor gram_newton_schulz(const at::Tensor& input, const NewtonSchulzOptions& o,
                              const std::optional<std::vector<int64_t>>& restarts) {
  at::NoGradGuard no_grad;
  check(o.precision != MatmulPrecision::kMedium,
        "the Gram form iterates in fp32: precision medium is not supported");
  for (int64_t r : restarts.value_or(std::vector<int64_t>{}))
    check(r >= 1 && r < o.steps, "a restart must lie in [1, {}), got {}", o.steps, r);
  if (input.dim() < 2 || input.numel() == 0 || input.size(-2) == input.size(-1))
    return newton_schulz(input, o);
  const std::vector<Coefficients> steps = resolve_coefficients(o);
  const bool transposed = o.transpose.value_or(input.size(-2) > input.size(-1));
  at::Tensor x = normalize_for_iteration(transposed ? input.mT() : input, o);
  x = iterate_gram(x.dim() == 2 ? x.unsqueeze(0) : x, steps,
                   restarts.value_or(best_restarts(steps)));
  if (input.dim() == 2) x = x.squeeze(0);
  return (transposed ? x.mT() : x).to(input.scalar_type());
}

}  // namespace muoncore::muon
