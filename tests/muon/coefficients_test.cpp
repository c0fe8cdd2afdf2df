#include "muoncore/muon/coefficients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muoncore/core/check.h"
#include "muoncore/muon/coefficient_guard.h"
#include "muoncore/muon/newton_schulz.h"

namespace muoncore::muon {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<Coefficients> steps_of(const std::string& name, int64_t count) {
  const CoefficientSet& set = coefficient_set(name);
  return iterate_coefficients(set.steps, set.mode, count);
}

NewtonSchulzOptions options(const std::string& type, int64_t steps, bool medium = false) {
  NewtonSchulzOptions o;
  o.coefficient_type = type;
  o.steps = steps;
  o.precision = medium ? MatmulPrecision::kMedium : MatmulPrecision::kHighest;
  return o;
}

TEST(Coefficients, CycleStartsAgainAndRepeatLastStays) {
  auto quintic = steps_of("quintic", 7);
  EXPECT_EQ(quintic[5], (Coefficients{4.0848, -6.8946, 2.9270}));
  EXPECT_EQ(quintic[6], (Coefficients{3.9505, -6.3029, 2.6377}));
  auto polar = steps_of("polar_express", 10);
  EXPECT_EQ(polar[9], (Coefficients{1.8750, -1.2500, 0.3750}));
  EXPECT_EQ(steps_of("deepseekv4", 5), steps_of("simple", 5));
  EXPECT_EQ(steps_of("deepseekv4", 10)[8], (Coefficients{2.0, -1.5, 0.5}));
}

TEST(Coefficients, UnknownNamesAndCountsAreRefused) {
  EXPECT_THAT([] { coefficient_set("quintc"); },
              ThrowsMessage<Error>(HasSubstr("did you mean quintic?")));
  EXPECT_THAT([] { parse_iteration_mode("x"); },
              ThrowsMessage<Error>(HasSubstr("cycle, repeat_last")));
  EXPECT_THAT([] { iterate_coefficients({}, IterationMode::kCycle, 5); },
              ThrowsMessage<Error>(HasSubstr("at least one")));
  EXPECT_THAT([] { steps_of("simple", 0); }, ThrowsMessage<Error>(HasSubstr("got 0")));
  EXPECT_THAT([] { steps_of("simple", 100); }, ThrowsMessage<Error>(HasSubstr("got 100")));
}

// All rows that are ours of a table that others computed (reference/muons.md section 1.2): slope at
// 0, f(1), least s with f(s) >= 0.5, least and greatest f on [0.01, 1], where f leaves [-2, 2].
TEST(Coefficients, PropertiesOfTheSets) {
  struct Row {
    const char* name;
    int64_t steps;
    double slope, at_one, half, low, high, radius;
  };
  const Row rows[] = {{"simple", 5, 484.9, 0.6964, 1.07e-3, 0.6818, 1.1344, 1.2638},
                      {"simple", 6, 1670.2, 1.1188, 3.1e-4, 0.6818, 1.1344, 1.2637},
                      {"quintic", 5, 492.7, 0.9783, 1.06e-3, 0.9778, 1.0318, 1.3246},
                      {"polar_express", 5, 976.3, 1.0273, 5.34e-4, 0.8704, 1.1236, 1.0109},
                      {"polar_express", 8, 6363.5, 1.0000, 8.5e-5, 1.0000, 1.0000, 1.0109},
                      {"cans", 5, 1048.9, 1.0051, 4.97e-4, 0.8844, 1.1198, 1.00001},
                      {"aol", 4, 104.1, -0.9935, 5.04e-3, -1.0844, 1.0844, 1.1806},
                      {"aol", 5, 417.3, 0.5536, 1.24e-3, -1.2084, 1.2084, 1.1793},
                      {"deepseekv4", 10, 79262.8, 1.0000, 6.75e-6, 1.0000, 1.0005, 1.2637},
                      {"cubic5", 5, 119.3, 0.7741, 4.31e-3, 0.7741, 1.3000, 1.1829}};
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.name) + " at " + std::to_string(row.steps));
    const MapProperties p = map_properties(steps_of(row.name, row.steps));
    EXPECT_NEAR(p.slope, row.slope, 0.051);
    EXPECT_NEAR(p.at_one, row.at_one, 6e-5);
    EXPECT_NEAR(p.half, row.half, 0.02 * row.half);  // two or three digits in the table
    EXPECT_NEAR(p.low, row.low, 6e-5);
    EXPECT_NEAR(p.high, row.high, 6e-5);
    EXPECT_NEAR(p.divergence_radius, row.radius, 7e-5);
  }
}

TEST(CoefficientGuard, NamesWhatASequenceDoes) {
  EXPECT_THAT([] { resolve_coefficients(options("aol", 5)); },
              ThrowsMessage<Error>(HasSubstr("aol at 5 steps turns directions round")));
  EXPECT_THAT([] { resolve_coefficients(options("aol", 8)); },
              ThrowsMessage<Error>(HasSubstr("turns directions round")));
  EXPECT_THAT([] { resolve_coefficients(options("quintic", 6)); },
              ThrowsMessage<Error>(HasSubstr("vanish")));
  EXPECT_THAT([] { resolve_coefficients(options("quintic", 7)); },
              ThrowsMessage<Error>(HasSubstr("vanish")));
  EXPECT_THAT([] { resolve_coefficients(options("cubic5", 4)); },
              ThrowsMessage<Error>(HasSubstr("exactly 5 steps")));
  NewtonSchulzOptions undone = options("aol", 4);
  undone.eps = 1e-7;
  EXPECT_THAT([&] { resolve_coefficients(undone); },
              ThrowsMessage<Error>(HasSubstr("leave eps out")));
  NewtonSchulzOptions custom = options("custom", 5);
  custom.custom_coefficients = {{8.28721201814563, -23.595886519098837, 17.300387312530933},
                                {4.107059111542203, -2.9478499167379106, 0.5448431082926601}};
  EXPECT_THAT([&] { resolve_coefficients(custom); },
              ThrowsMessage<Error>(HasSubstr("custom coefficients at 5 steps")));
  custom.upstream_exact = true;
  EXPECT_EQ(resolve_coefficients(custom).size(), 5u);
}

TEST(CoefficientGuard, DefaultsOfEverySetPass) {
  for (bool medium : {false, true}) {
    for (const char* name : {"simple", "quintic", "polar_express", "cans", "deepseekv4", "cubic5"})
      EXPECT_NO_THROW(resolve_coefficients(options(name, 5, medium))) << name;
    EXPECT_NO_THROW(resolve_coefficients(options("aol", 4, medium)));
    EXPECT_NO_THROW(resolve_coefficients(options("quintic", 10, medium)));
    EXPECT_NO_THROW(resolve_coefficients(options("deepseekv4", 10, medium)));
    EXPECT_NO_THROW(resolve_coefficients(options("polar_express", 16, medium)));
  }
}

TEST(CoefficientGuard, UpstreamExactReachesEverything) {
  for (const char* name : {"aol", "quintic", "cans"}) {
    NewtonSchulzOptions o = options(name, 6, true);
    o.upstream_exact = true;
    EXPECT_EQ(resolve_coefficients(o).size(), 6u) << name;
  }
}

TEST(Coefficients, CustomTriplesFollowTheirIterationMode) {
  NewtonSchulzOptions o = options("custom", 4);
  const Coefficients first{2, -1.5, 0.5}, last{1.5, -0.5, 0};
  o.custom_coefficients = {first, last};
  EXPECT_EQ(resolve_coefficients(o), (std::vector<Coefficients>{first, last, first, last}));
  o.custom_mode = parse_iteration_mode("repeat_last");
  EXPECT_EQ(resolve_coefficients(o), (std::vector<Coefficients>{first, last, last, last}));
  EXPECT_EQ(parse_iteration_mode("cycle"), IterationMode::kCycle);
}

TEST(CoefficientGuard, CustomTriplesAndTypesMustMeet) {
  NewtonSchulzOptions o = options("quintic", 5);
  o.custom_coefficients = {{1.5, -0.5, 0}};
  EXPECT_THAT([&] { resolve_coefficients(o); },
              ThrowsMessage<Error>(HasSubstr("set it to custom")));
  EXPECT_THAT([] { resolve_coefficients(options("custom", 5)); },
              ThrowsMessage<Error>(HasSubstr("needs custom coefficients")));
}

}  // namespace
}  // namespace muoncore::muon
