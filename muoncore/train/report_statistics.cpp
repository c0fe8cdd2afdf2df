#include "muoncore/train/report_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "muoncore/core/check.h"

namespace muoncore::train {
namespace {

constexpr double kNormalPerMad =
    1.4826;  // 1 / Phi^-1(3/4): median absolute deviation -> standard deviation
constexpr double kTwice = 2.0;
constexpr double kMostPairs = 0.9;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double sample_deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0.0;
  // All alike is exactly 0: a mean that rounds must not make a spread out of nothing.
  if (std::ranges::all_of(values, [&](double v) { return v == values[0]; })) return 0.0;
  double center = mean(values);
  double squares = 0.0;
  for (double v : values) squares += (v - center) * (v - center);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

double robust_deviation(const std::vector<double>& values) {
  double center = median(values);
  std::vector<double> distances(values.size());
  std::ranges::transform(values, distances.begin(), [&](double v) { return std::abs(v - center); });
  return kNormalPerMad * median(distances);
}

int sign(double x) { return (x > 0) - (x < 0); }

void check_exact(const std::vector<double>& values) {
  for (double v : values)
    check(v == values[0], "an exact quantity differs between repeats of one arm: {} and {}",
          values[0], v);
}

Verdict verdict_of(const Gap& gap, Pairing pairing) {
  if (pairing == Pairing::kExact) return gap.gap != 0 ? Verdict::kHolds : Verdict::kEqual;
  if (gap.differences.size() < 2) return Verdict::kOneRepeat;
  double most = pairing == Pairing::kSeeds ? 1.0 : kMostPairs;
  bool holds = gap.gap != 0 && std::abs(gap.gap) > gap.needed * gap.spread && gap.same_sign >= most;
  return holds ? Verdict::kHolds : Verdict::kLevel;
}

}  // namespace

Spread spread_of(const std::vector<double>& values, Pairing pairing) {
  if (values.empty()) throw std::invalid_argument("spread_of: no values");
  bool timed = pairing == Pairing::kTimedSteps;
  return {.center = timed ? median(values) : mean(values),
          .deviation = timed ? robust_deviation(values) : sample_deviation(values),
          .min = std::ranges::min(values),
          .max = std::ranges::max(values)};
}

double needed_ratio(int64_t pairs) {
  // Student's t, two-sided 95 %, for 1 and 2 degrees of freedom; from 4 pairs on t / sqrt(n) is
  // below 2.
  if (pairs == 2) return 12.7062 / std::sqrt(2.0);
  if (pairs == 3) return 4.3027 / std::sqrt(3.0);
  return kTwice;
}

Gap judge(const std::vector<double>& first, const std::vector<double>& other, Pairing pairing) {
  if (first.empty() || first.size() != other.size())
    throw std::invalid_argument("judge: the arms need the same number of values, at least one");
  if (pairing == Pairing::kExact) {
    check_exact(first);
    check_exact(other);
  }
  Gap gap;
  gap.differences.resize(first.size());
  std::ranges::transform(other, first, gap.differences.begin(), std::minus<>());
  Spread a = spread_of(first, pairing), b = spread_of(other, pairing),
         d = spread_of(gap.differences, pairing);
  gap.gap = d.center;
  gap.relative =
      a.center != 0 ? gap.gap / std::abs(a.center) : std::numeric_limits<double>::quiet_NaN();
  double pooled = std::sqrt((a.deviation * a.deviation + b.deviation * b.deviation) / 2);
  gap.spread = pairing == Pairing::kSeeds ? std::max(pooled, d.deviation) : d.deviation;
  gap.needed =
      pairing == Pairing::kSeeds ? needed_ratio(static_cast<int64_t>(first.size())) : kTwice;
  if (gap.gap != 0)
    gap.ratio =
        gap.spread > 0 ? std::abs(gap.gap) / gap.spread : std::numeric_limits<double>::infinity();
  auto same =
      std::ranges::count_if(gap.differences, [&](double x) { return sign(x) == sign(gap.gap); });
  gap.same_sign = static_cast<double>(same) / static_cast<double>(first.size());
  gap.verdict = verdict_of(gap, pairing);
  return gap;
}

std::string words(Verdict verdict, Pairing pairing) {
  switch (verdict) {
    case Verdict::kHolds:
      return pairing == Pairing::kExact ? "holds (exact)" : "holds";
    case Verdict::kLevel:
      return "level within spread";
    case Verdict::kEqual:
      return "equal (exact)";
    case Verdict::kOneRepeat:
      return pairing == Pairing::kSeeds ? "one seed: no verdict" : "one step: no verdict";
  }
  throw std::invalid_argument("words: no such verdict");
}

std::string verdict_rule(int64_t seeds) {
  std::string by_seed = seeds < 2
                            ? "With one seed there is no spread over seeds, and so no "
                              "verdict on what depends on the seed."
                            : fmt::format(
                                  "Differences are taken seed by seed (same start, same "
                                  "prompts). The spread is the larger of the "
                                  "two arms' pooled standard deviation over the seeds and "
                                  "the standard deviation of the paired "
                                  "differences. A gap \"holds\" when it is above {:.2f} "
                                  "times the spread (for {} seeds: the larger "
                                  "of 2 and Student's t at 95 % / sqrt({})) and has the same "
                                  "sign in every seed; otherwise it is "
                                  "\"level within spread\". Chance alone lets up to one gap in "
                                  "twenty pass.",
                                  needed_ratio(seeds), seeds, seeds);
  return by_seed +
         " Times are medians over steps that alternate between the arms in one process; their "
         "spread is the robust "
         "deviation (1.4826 x median absolute deviation) of the paired differences, and a gap "
         "holds above 2 times the "
         "spread when at least nine of ten pairs agree in sign. Optimizer-state bytes follow from "
         "the shapes: they are "
         "exact, and any difference holds.";
}

}  // namespace muoncore::train
