// The polynomial coefficients of Newton-Schulz: X <- a X + (b A + c A A) X with A = X X^T, one
// triple per step.
//
// Sources: `simple` Keller Jordan's Muon; `quintic` leloykun's tuned sequence (both as in NVIDIA
// Emerging-Optimizers 0.3.0, whose rounding and iteration modes all sets but the last keep);
// `polar_express` arXiv 2505.16932 with the safety factor 1.01 baked in; `cans` arXiv 2506.10935;
// `aol` arXiv 2512.04632 (an early snapshot); `deepseekv4` DeepSeek-V4's eight fast and two
// polishing steps; `cubic5` arXiv 2606.00371 (Emerging-Optimizers 0.4).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muoncore::muon {

struct Coefficients {
  double a, b, c;
  bool operator==(const Coefficients&) const = default;
};

// What follows the last triple of a set when more steps are asked for.
enum class IterationMode { kCycle, kRepeatLast };

struct CoefficientSet {
  std::string name;
  std::vector<Coefficients> steps;
  IterationMode mode;
  int64_t exact_steps;  // 0: any number of steps; else the only one that the set is made for
  // What keeps the set from diverging or from turning a direction round (see coefficient_guard.h):
  double safety;           // X is divided by safety * norm instead of norm
  bool needs_aol_scaling;  // rows are scaled by AOL (newton_schulz.h) before the iteration
};

// By name; throws for an unknown one, naming the nearest. "custom" is not a set: its triples come
// with the options.
const CoefficientSet& coefficient_set(std::string_view name);
const std::vector<CoefficientSet>& all_coefficient_sets();

// "cycle" or "repeat_last"; throws for anything else.
IterationMode parse_iteration_mode(std::string_view text);

// The triples of `count` steps. Throws for no triples and for a count outside [1, 99].
std::vector<Coefficients> iterate_coefficients(const std::vector<Coefficients>& triples,
                                               IterationMode mode, int64_t count);

}  // namespace muoncore::muon
