#include "muoncore/muon/coefficients.h"

#include <fmt/ranges.h>

#include "muoncore/core/check.h"

namespace muoncore::muon {
namespace {

std::vector<Coefficients> deepseek_v4() {
  std::vector<Coefficients> steps(8, {3.4445, -4.7750, 2.0315});
  steps.insert(steps.end(), 2, {2.0, -1.5, 0.5});
  return steps;
}

std::vector<CoefficientSet> make_sets() {
  // clang-format off
  return {
      {"simple", {{3.4445, -4.7750, 2.0315}}, IterationMode::kCycle, 0, 1.0, false},
      {"quintic",
       {{4.0848, -6.8946, 2.9270}, {3.9505, -6.3029, 2.6377}, {3.7418, -5.5913, 2.3037},
        {2.8769, -3.1427, 1.2046}, {2.8366, -3.0525, 1.2012}},
       IterationMode::kCycle, 0, 1.0, false},
      {"polar_express",
       {{8.2051, -22.9019, 16.4607}, {4.0664, -2.8612, 0.5184}, {3.9096, -2.8234, 0.5250},
        {3.2856, -2.4153, 0.4853}, {2.2779, -1.6198, 0.3985}, {1.8726, -1.2307, 0.3585},
        {1.8564, -1.2132, 0.3568}, {1.8750, -1.2500, 0.3750}},
       IterationMode::kRepeatLast, 0, 1.0, false},
      {"cans",
       {{8.4703, -25.1081, 18.6293}, {4.1828, -3.1087, 0.5806}, {3.9619, -2.9541, 0.5630},
        {3.2866, -2.4647, 0.5074}, {2.2737, -1.6447, 0.4162}},
       IterationMode::kRepeatLast, 0, 1.02, false},
      {"aol",
       {{4.0098, -7.0585, 2.4635}, {3.4585, -5.5479, 2.5959}, {2.7573, -3.2939, 1.4254},
        {2.7215, -3.0494, 1.3169}},
       IterationMode::kCycle, 0, 1.2, true},
      {"deepseekv4", deepseek_v4(), IterationMode::kRepeatLast, 0, 1.0, false},
      {"cubic5",
       {{3.3656576, -3.3420992, 0}, {2.5744352, -1.4957376, 0}, {2.5368962, -1.4312570, 0},
        {2.4418906, -1.2764040, 0}, {2.2230472, -0.9630650, 0}},
       IterationMode::kCycle, 5, 1.02, false},
  };
  // clang-format on
}

}  // namespace

const std::vector<CoefficientSet>& all_coefficient_sets() {
  static const std::vector<CoefficientSet> sets = make_sets();
  return sets;
}

const CoefficientSet& coefficient_set(std::string_view name) {
  std::vector<std::string> names;
  for (const CoefficientSet& set : all_coefficient_sets()) {
    if (set.name == name) return set;
    names.push_back(set.name);
  }
  names.push_back("custom");
  std::string near = nearest_name(name, names);
  fail("coefficient type '{}' is not one of {}{}", name, fmt::join(names, ", "),
       near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

IterationMode parse_iteration_mode(std::string_view text) {
  if (text == "cycle") return IterationMode::kCycle;
  if (text == "repeat_last") return IterationMode::kRepeatLast;
  fail("iteration mode '{}' is not one of cycle, repeat_last", text);
}

std::vector<Coefficients> iterate_coefficients(const std::vector<Coefficients>& triples,
                                               IterationMode mode, int64_t count) {
  check(!triples.empty(), "a Newton-Schulz coefficient set needs at least one (a, b, c) triple");
  check(count >= 1 && count < 100, "num_ns_steps must be between 1 and 99, got {}", count);
  std::vector<Coefficients> out;
  const int64_t last = static_cast<int64_t>(triples.size()) - 1;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(triples[mode == IterationMode::kCycle ? i % (last + 1) : std::min(i, last)]);
  return out;
}

}  // namespace muoncore::muon
