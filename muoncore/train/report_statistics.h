// What a comparison may claim: the spread over repeats, the gap between two arms, and the verdict
// in words. Pure functions of numbers. The rules stand here once; verdict_rule() prints them into
// every report.
//
// Repeats are paired: repeat i of both arms had the same start and the same prompts (a seed), or
// ran back to back (a timed step). So a difference is taken within each pair, and what the pairs
// share does not blur it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muoncore::train {

// How the repeats of a quantity relate, and so which rule its verdict follows.
enum class Pairing {
  kSeeds,       // one value per seed: means and standard deviations
  kTimedSteps,  // one value per alternating timed step: medians and a robust spread
  kExact,       // follows from shapes alone: every repeat must give the same value
};

// Of one arm over its repeats. `center` is the mean, for kTimedSteps the median; `deviation` is the
// sample standard deviation (n - 1), for kTimedSteps 1.4826 * median |x - median|, which equals it
// for a normal distribution and does not see a single slow step. 0 for one value.
struct Spread {
  double center = 0.0;
  double deviation = 0.0;
  double min = 0.0;
  double max = 0.0;
};

enum class Verdict { kHolds, kLevel, kEqual, kOneRepeat };

// Of an arm against the first arm.
struct Gap {
  std::vector<double> differences;  // arm - first arm, by pair
  double gap = 0.0;                 // their mean (kTimedSteps: median)
  double relative = 0.0;            // gap / |center of the first arm|; NaN when that is 0
  double spread = 0.0;              // see judge()
  double ratio = 0.0;      // |gap| / spread; infinite for a gap without spread, 0 without a gap
  double needed = 0.0;     // `ratio` must be above this
  double same_sign = 0.0;  // fraction of the pairs whose difference has the gap's sign
  Verdict verdict = Verdict::kLevel;
};

// Throws std::invalid_argument for no values. NaN never arrives here: MetricLog refuses it by name.
Spread spread_of(const std::vector<double>& values, Pairing pairing);

// kSeeds: `spread` is the larger of the two arms' pooled standard deviation sqrt((s_a^2 + s_b^2) /
// 2) and the standard
//   deviation of the differences. Holds when |gap| > needed_ratio(n) * spread and every difference
//   has the gap's sign.
// kTimedSteps: `spread` is the robust deviation of the differences. Holds when |gap| > 2 * spread
// and at least nine of
//   ten differences have the gap's sign.
// kExact: holds when the two differ at all; otherwise equal. Throws Error when an arm's own repeats
// differ. One pair of kSeeds or kTimedSteps: no verdict. Throws std::invalid_argument for no pair
// or unequal counts.
Gap judge(const std::vector<double>& first, const std::vector<double>& other, Pairing pairing);

// max(2, t / sqrt(n)) with Student's two-sided 95 % value t for n - 1 degrees of freedom: for few
// pairs twice the spread is not enough to call a gap real. 8.98 for 2 pairs, 2.48 for 3, 2 from 4
// on.
double needed_ratio(int64_t pairs);

// "holds", "holds (exact)", "equal (exact)", "level within spread", "one seed: no verdict".
std::string words(Verdict verdict, Pairing pairing);

// The rules above as sentences for people, for this number of seeds.
std::string verdict_rule(int64_t seeds);

}  // namespace muoncore::train
