#include "muoncore/muon/coefficient_guard.h"

#include <algorithm>
#include <cmath>

#include "muoncore/core/check.h"

namespace muoncore::muon {
namespace {

constexpr int kGrid = 2000;
constexpr double kLargestValue = 2.5;
constexpr double kSmallestUpperValue = 0.3;

}  // namespace

double map_singular_value(const std::vector<Coefficients>& steps, double s) {
  for (const Coefficients& k : steps) {
    const double square = s * s;
    s *= k.a + square * (k.b + k.c * square);
  }
  return s;
}

MapProperties map_properties(const std::vector<Coefficients>& steps) {
  MapProperties p{1.0, map_singular_value(steps, 1.0), 0.0, 1e300, -1e300, 2.0};
  for (const Coefficients& k : steps) p.slope *= k.a;
  p.half = 0.1 / p.slope;  // f rises by no more than its slope at zero, up to the first bend
  while (map_singular_value(steps, p.half) < 0.5) p.half *= 1.0001;
  for (int i = 0; i <= 99 * kGrid; ++i) {
    const double f = map_singular_value(steps, 0.01 + 0.99 * i / (99.0 * kGrid));
    p.low = std::min(p.low, f);
    p.high = std::max(p.high, f);
  }
  for (double s = 1.0; s < 2.0; s += 1e-5) {
    const double f = map_singular_value(steps, s);
    if (!(std::abs(f) <= 2.0)) {
      p.divergence_radius = s;
      break;
    }
  }
  return p;
}

void check_singular_value_map(const std::vector<Coefficients>& steps, double largest,
                              const std::string& what) {
  for (int i = 1; i <= kGrid; ++i) {
    const double s = largest * i / kGrid;
    const double f = map_singular_value(steps, s);
    check(f > 0, "{} turns directions round: it maps the singular value {:.4f} to {:.4f}", what, s,
          f);
    check(f < kLargestValue, "{} diverges: it maps the singular value {:.4f} to {:.4g}", what, s,
          f);
    check(i <= kGrid / 2 || f >= kSmallestUpperValue,
          "{} lets large directions vanish: it maps the singular value {:.4f} to {:.4f}", what, s,
          f);
  }
}

}  // namespace muoncore::muon
