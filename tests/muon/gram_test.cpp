#include "muoncore/muon/gram.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muoncore/core/check.h"
#include "muoncore/muon/reference.h"
#include "tests/muon/inputs.h"

namespace muoncore::muon {
namespace {

using testing::gaussian;
using ::testing::HasSubstr;
using testing::relative_error;
using ::testing::ThrowsMessage;

std::vector<Coefficients> steps_of(const std::string& name) {
  const CoefficientSet& set = coefficient_set(name);
  return iterate_coefficients(set.steps, set.mode, 5);
}

TEST(Gram, EqualsTheStandardForm) {
  for (const char* type : {"simple", "quintic", "polar_express"})
    for (const auto& shape : std::vector<std::vector<int64_t>>{
             {8, 32}, {32, 8}, {17, 31}, {3, 12, 20}, {1, 9}, {16, 16}}) {
      NewtonSchulzOptions o;
      o.coefficient_type = type;
      at::Tensor x = gaussian(shape), expected = reference::newton_schulz(x, o);
      EXPECT_LE(relative_error(gram_newton_schulz(x, o), expected), 3e-4)
          << type << ::testing::PrintToString(shape);
      EXPECT_LE(relative_error(gram_newton_schulz(x.to(at::kDouble), o, std::vector<int64_t>{}),
                               expected),
                1e-9);
      EXPECT_LE(relative_error(gram_newton_schulz(x * 1e-30, o), expected), 1e-3);
    }
  EXPECT_TRUE(gram_newton_schulz(at::zeros({4, 8}), {}).equal(at::zeros({4, 8})));
}

// reference/muons.md section 2.1, reproduced there from the package's own autotuner
TEST(Gram, RestartsAreChosenByTheTable) {
  EXPECT_EQ(best_restarts(steps_of("quintic")), std::vector<int64_t>{2});
  EXPECT_NEAR(restart_score(steps_of("quintic"), {2}), 53.2, 0.1);
  EXPECT_EQ(best_restarts(steps_of("simple")), std::vector<int64_t>{3});
  EXPECT_NEAR(restart_score(steps_of("simple"), {3}), 62.5, 0.1);
  const std::vector<Coefficients> polar_express_105{
      {7.892582874424408, -20.38301394587957, 13.555306149406924},
      {3.911484868135431, -2.5464635929060884, 0.4268988319673074},
      {3.760657955697423, -2.512819018216563, 0.4323647349070073},
      {3.160399673686287, -2.149649518898498, 0.3996366907664389},
      {2.1910971618617303, -1.441662010214663, 0.328146487623155}};
  EXPECT_EQ(best_restarts(polar_express_105), std::vector<int64_t>{2});
  EXPECT_NEAR(restart_score(polar_express_105, {2}), 84.57, 0.05);
  EXPECT_GT(restart_score(polar_express_105, {}), 1e12);
}

TEST(Gram, RefusesWhatItCannotDo) {
  NewtonSchulzOptions medium;
  medium.precision = MatmulPrecision::kMedium;
  EXPECT_THAT(
      [&] {
        gram_newton_schulz(at::zeros({4, 8}), medium);
      },
      ThrowsMessage<Error>(HasSubstr("medium")));
  EXPECT_THAT(
      [] {
        gram_newton_schulz(at::zeros({4, 8}), {}, std::vector<int64_t>{5});
      },
      ThrowsMessage<Error>(HasSubstr("[1, 5), got 5")));
  EXPECT_THAT([] { gram_newton_schulz(at::zeros({4}), {}); },
              ThrowsMessage<Error>(HasSubstr("1 dimensions")));
}

}  // namespace
}  // namespace muoncore::muon
