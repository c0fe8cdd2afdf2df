// Exact sums of squares: equal to arithmetic in integers, whatever the order, cut or threads.
#include "muoncore/optim/exact_sum.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "muoncore/core/check.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;

ExactSum squares(const at::Tensor& tensor) {
  ExactSum sum;
  sum.add_squares(tensor);
  return sum;
}

TEST(ExactSum, AllOnesGiveTheExactRoot) {
  for (int64_t n : {0, 1, 3, 4, 5, 64, 1000, 1'500'001})
    for (auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      const ExactSum sum = squares(at::full({n}, 1.0, dtype));
      EXPECT_EQ(sum.value(), static_cast<double>(n));
      EXPECT_EQ(sum.root(), std::sqrt(static_cast<double>(n)));
      EXPECT_TRUE(sum.finite());
    }
}

TEST(ExactSum, KeepsWhatFp64WouldDrop) {
  const ExactSum sum = squares(at::tensor({1e30f, 1.0f, 1e-30f, -1e30f}));
  ExactSum rest = squares(at::tensor({1.0f, 1e-30f}));
  ExactSum huge = squares(at::tensor({1e30f, 1e30f}));
  EXPECT_EQ(huge.value(), sum.value());  // rounded, but the digits are there:
  EXPECT_NE(huge.record(), sum.record());
  huge.merge(rest);
  EXPECT_EQ(huge.record(), sum.record());
  // 1 + 2^-54 + 2^-54 lies half way between two numbers of fp64; a square of 2^-200 decides
  const double half = std::ldexp(1.0, -27), more = std::ldexp(1.0, -100);
  EXPECT_EQ(squares(at::tensor({1.0, half, half}, at::kDouble)).value(), 1.0);
  EXPECT_EQ(squares(at::tensor({1.0, half, more, half}, at::kDouble)).value(),
            1.0 + std::numeric_limits<double>::epsilon());
}

TEST(ExactSum, SameIntegersForEveryCutOrderAndThread) {
  const at::Tensor x = random_tensor({300'007}, "x");
  const auto whole = squares(x).record();
  for (int64_t cut : {1, 63, 64, 1000, 299'999}) {
    ExactSum a = squares(x.slice(0, cut).contiguous());
    a.merge(squares(x.slice(0, 0, cut).contiguous()));
    EXPECT_EQ(a.record(), whole) << cut;
  }
  EXPECT_EQ(squares(x.flip(0).contiguous()).record(), whole);
  const at::Tensor large = at::cat({x, x, x, x, x, x, x, x});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = squares(large).record();
  at::set_num_threads(2);
  EXPECT_EQ(squares(large).record(), one);
  at::set_num_threads(before);
}

TEST(ExactSum, MatchesFp64ArithmeticInEveryDtype) {
  for (auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const at::Tensor x = random_tensor({10'001}, "y").to(dtype);
    const double expected = x.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(squares(x).value(), expected, 1e-12 * expected);
  }
}

TEST(ExactSum, EndsOfTheRange) {
  const double largest = std::numeric_limits<double>::max(),
               smallest = std::numeric_limits<double>::denorm_min();
  EXPECT_TRUE(std::isinf(squares(at::full({4}, largest, at::kDouble)).root()));
  EXPECT_EQ(squares(at::full({1}, largest, at::kDouble)).root(), largest);
  EXPECT_TRUE(std::isinf(squares(at::full({1}, largest, at::kDouble)).value()));
  EXPECT_TRUE(squares(at::full({1}, largest, at::kDouble)).finite());
  EXPECT_EQ(squares(at::full({4}, smallest, at::kDouble)).root(), 2 * smallest);
  const float tiny = std::numeric_limits<float>::denorm_min(),
              huge = std::numeric_limits<float>::max();
  EXPECT_EQ(squares(at::full({9}, tiny)).root(), 3 * static_cast<double>(tiny));
  EXPECT_EQ(squares(at::full({9}, huge)).root(), 3 * static_cast<double>(huge));
}

// The largest mantissa, as often as one sum of integers is given it.
TEST(ExactSum, LargestMantissasDoNotOverflow) {
  const float below_two = std::nextafter(2.0f, 0.0f);
  for (int64_t n : {(int64_t{1} << 17) - 1, int64_t{1} << 17, (int64_t{1} << 18) - 1})
    EXPECT_DOUBLE_EQ(squares(at::full({n}, below_two)).value(),
                     static_cast<double>(n) * below_two * below_two);
}

TEST(ExactSum, CountsWhatIsNotFinite) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  ExactSum sum = squares(at::tensor({1.0f, nan, -inf, inf, nan, nan}));
  EXPECT_EQ(sum.nans(), 3);
  EXPECT_EQ(sum.infinities(), 2);
  EXPECT_TRUE(std::isnan(sum.root()));
  EXPECT_TRUE(std::isinf(squares(at::tensor({-inf, 1.0f})).root()));
  EXPECT_EQ(squares(at::full({1}, nan, at::kBFloat16)).nans(), 1);
  EXPECT_EQ(squares(at::full({1}, 1e300, at::kDouble)).infinities(), 0);
  EXPECT_EQ(squares(at::tensor({1e300, std::nan("")}, at::kDouble)).nans(), 1);
}

TEST(ExactSum, RecordsAddUp) {
  std::vector<int64_t> total(ExactSum::kRecordSize, 0);
  ExactSum merged;
  for (int rank = 0; rank < 64; ++rank) {
    const ExactSum own = squares(random_tensor({1000}, "r", rank) * std::pow(10.0, rank - 30));
    const auto record = own.record();
    for (size_t i = 0; i < total.size(); ++i) total[i] += record[i];
    merged.merge(own);
  }
  EXPECT_EQ(ExactSum::from_record(total).record(), merged.record());
  EXPECT_THROW(ExactSum::from_record({1, 2}), Error);
}

TEST(ExactSum, AddsPlainValues) {
  ExactSum sum;
  for (int i = 0; i < 10; ++i) sum.add(0.1);
  EXPECT_EQ(sum.value(),
            1.0);  // ten times the double 0.1 is 1 + 5.6e-17: fp64 adds up to 1 - 1e-16
  sum.add(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isinf(sum.value()));
}

}  // namespace
}  // namespace muoncore::optim
