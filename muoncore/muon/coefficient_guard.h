// What a sequence of Newton-Schulz steps does to one singular value, and the refusal of sequences
// that diverge, turn a direction round, or let large directions vanish. Facts: `aol` has a root at
// 0.8837 of the norm, and a fifth step starts its cycle again; `cans` grows without bound just
// above 1, where rounding to bf16 can put a singular value; `quintic` at 6 or 7 steps applies its
// steep first triple to values near 1, which it maps to 0.12.
#pragma once

#include <string>
#include <vector>

#include "muoncore/muon/coefficients.h"

namespace muoncore::muon {

// f(s): the singular value s after all steps, s <- s (a + b s^2 + c s^4).
double map_singular_value(const std::vector<Coefficients>& steps, double s);

struct MapProperties {
  double slope;   // f'(0), the product of all a: how much the smallest directions grow
  double at_one;  // f(1): what a matrix of rank one becomes
  double half;    // least s with f(s) >= 0.5: smaller directions come out too small
  double low;     // least and greatest f on [0.01, 1]
  double high;
  double divergence_radius;  // least s > 1 with |f(s)| > 2 (searched to 2; 2 when there is none)
};
MapProperties map_properties(const std::vector<Coefficients>& steps);

// Throws unless f is positive and below 2.5 on (0, largest], and at least 0.3 on its upper half.
// `largest` is the greatest singular value that rounding lets the normalized matrix have; `what`
// names the sequence in the message.
void check_singular_value_map(const std::vector<Coefficients>& steps, double largest,
                              const std::string& what);

}  // namespace muoncore::muon
