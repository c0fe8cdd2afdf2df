// Faults found in other people's orthogonalization, each with the smallest input that shows it
// (reference/muons.md sections 1.2, 4.3, 4.4 and 7). docs/parity.md has the table.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "muoncore/muon/newton_schulz.h"
#include "muoncore/muon/reference.h"
#include "tests/muon/inputs.h"

namespace muoncore::muon {
namespace {

using muoncore::testing::gaussian;
using muoncore::testing::relative_error;

NewtonSchulzOptions with(MatmulPrecision precision, const std::string& type = "quintic",
                         int64_t steps = 5) {
  NewtonSchulzOptions o;
  o.precision = precision;
  o.coefficient_type = type;
  o.steps = steps;
  return o;
}

// An eps in the norm, fp16 or bf16 before the norm, a norm that overflows: each fails somewhere on
// this line, torch's own below 1e-7 and above 1e19.
TEST(NewtonSchulzTrap, EveryDecadeGivesTheSameDirection) {
  const at::Tensor x = gaussian({8, 20}, 3);
  for (auto precision : {MatmulPrecision::kHighest, MatmulPrecision::kMedium}) {
    const bool medium = precision == MatmulPrecision::kMedium;
    const at::Tensor one = newton_schulz(x, with(precision));
    for (int decade = -30; decade <= 30; ++decade) {
      const at::Tensor scaled = (x.to(at::kDouble) * std::pow(10.0, decade)).to(at::kFloat);
      EXPECT_LE(relative_error(newton_schulz(scaled, with(precision)), one), medium ? 3e-2 : 1e-5)
          << "1e" << decade << (medium ? " medium" : "");
    }
  }
}

// DeepSpeed's Gram form and optimuon cast to fp16 and normalize then: relative error 1 at 1e3
// (above 65504 in all), 0.2 at 1e-7, 1.1 at 1e-8.
TEST(NewtonSchulzTrap, HalfPrecisionComesAfterTheNorm) {
  const at::Tensor x = gaussian({64, 256}, 1);
  const at::Tensor exact = reference::newton_schulz(x, {});
  for (double scale : {1e5, 1e3, 1.0, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9})
    EXPECT_LE(relative_error(newton_schulz(x * scale, with(MatmulPrecision::kMedium)), exact),
              1.5e-2)
        << scale;
  for (auto dtype : {at::kHalf, at::kBFloat16}) {  // input that is narrow itself, small and large
    for (double scale : {1e-4, 1e4}) {
      const at::Tensor narrow = (x * scale).to(dtype);
      EXPECT_LE(relative_error(newton_schulz(narrow, {}), reference::newton_schulz(narrow, {})),
                dtype == at::kHalf ? 1e-3 : 8e-3)
          << dtype << scale;
    }
  }
}

// One row, one column, one number: the polynomial at 1 (quintic: 0.9783) in the input's direction.
TEST(NewtonSchulzTrap, VectorsAndNumbersBecomeTheirDirection) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{1, 1}, {1, 7}, {7, 1}, {2, 1, 5}, {2, 5, 1}}) {
    const at::Tensor x = gaussian(shape, 4, at::kDouble);
    const at::Tensor direction = x / x.square().sum({-2, -1}, true).sqrt();
    EXPECT_LE(relative_error(newton_schulz(x.to(at::kFloat), {}), direction * 0.97828), 1e-4)
        << ::testing::PrintToString(shape);
  }
  const at::Tensor minus = at::zeros({1, 1}) - 1e-25;
  EXPECT_NEAR(newton_schulz(minus, {}).item<double>(), -0.97828, 1e-4);
}

// In bf16 the rounding noise of a rank-deficient matrix is lifted to singular values of about 1
// (rank one 64 x 128: ||O|| 1.9 for polar_express, 7.7 for ten steps of deepseekv4, everywhere).
// It is bounded here, leaves the true direction alone, and is absent in fp32.
TEST(NewtonSchulzTrap, RankOneInBf16LiftsNoiseWithinBounds) {
  const at::Tensor x = gaussian({64, 1}, 1).matmul(gaussian({1, 128}, 2));
  const at::Tensor direction = reference::polar_factor(x, 1e-5);
  for (const auto& [type, steps] : std::vector<std::pair<std::string, int64_t>>{
           {"simple", 5}, {"quintic", 5}, {"polar_express", 5}, {"cans", 5}, {"deepseekv4", 10}}) {
    const at::Tensor low = newton_schulz(x, with(MatmulPrecision::kMedium, type, steps));
    const at::Tensor high = newton_schulz(x, with(MatmulPrecision::kHighest, type, steps));
    const double along = (low.to(at::kDouble) * direction).sum().item<double>();
    EXPECT_GT(along, 0.6) << type;
    EXPECT_LT(along, 1.25) << type;
    EXPECT_LT(low.norm().item<double>(), type == "deepseekv4" ? 9.0 : 3.0) << type;
    EXPECT_LT(high.norm().item<double>(), 1.25) << type;
  }
}

// What pads a matrix (Megatron #6740, dion #97) stays zero and changes nothing else.
TEST(NewtonSchulzTrap, RowsAndColumnsOfZerosStayZero) {
  const at::Tensor x = gaussian({6, 10}, 5);
  const at::Tensor plain = newton_schulz(x, {});
  for (const char* type : {"quintic", "aol"}) {  // aol divides by the sums of rows: 0 / 0
    const auto o = with(MatmulPrecision::kHighest, type, 4);
    const at::Tensor tall = newton_schulz(at::cat({x, at::zeros({3, 10})}, 0), o);
    EXPECT_LE(relative_error(tall.slice(0, 0, 6), newton_schulz(x, o)), 1e-5) << type;
    EXPECT_TRUE(tall.slice(0, 6).equal(at::zeros({3, 10}))) << type;
  }
  const at::Tensor wide = newton_schulz(at::cat({x, at::zeros({6, 3})}, 1), {});
  EXPECT_LE(relative_error(wide.slice(1, 0, 10), plain), 1e-5);
  EXPECT_TRUE(wide.slice(1, 10).equal(at::zeros({6, 3})));
}

// One large entry among tiny ones: squares that underflow must not take the norm with them.
TEST(NewtonSchulzTrap, MixedMagnitudesKeepTheLargest) {
  at::Tensor x = gaussian({5, 7}, 6) * 1e-25;
  x[2][3] = 1e5;
  const at::Tensor y = newton_schulz(x, {});
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  EXPECT_NEAR(y[2][3].item<double>(), 0.97828, 1e-4);
  EXPECT_LE(relative_error(y, reference::newton_schulz(x, {})), 1e-4);
}

// A singular value of 1e-12 beside 1: finite, the large directions are right, and no direction
// turns round.
TEST(NewtonSchulzTrap, ANearlySingularMatrixKeepsItsSigns) {
  const at::Tensor u = reference::polar_factor(gaussian({6, 6}, 7));
  const at::Tensor v = reference::polar_factor(gaussian({6, 6}, 8));
  at::Tensor s = at::zeros({6}, at::kDouble);
  for (int64_t i = 0; i < 6; ++i) s[i] = std::pow(10.0, -2.4 * static_cast<double>(i));
  const at::Tensor x = (u * s).matmul(v.t()).to(at::kFloat);
  for (const auto& [type, steps] : std::vector<std::pair<std::string, int64_t>>{
           {"quintic", 5}, {"polar_express", 8}, {"deepseekv4", 10}}) {
    const at::Tensor y = newton_schulz(x, with(MatmulPrecision::kHighest, type, steps));
    const at::Tensor along = u.t().matmul(y.to(at::kDouble)).matmul(v).diagonal();
    EXPECT_GT(along[0].item<double>(), 0.9) << type;
    EXPECT_GT(along[1].item<double>(), 0.8) << type;
    EXPECT_GT(along.min().item<double>(), -0.2) << type;  // below fp32's reach: noise, of any sign
    EXPECT_LT(y.norm().item<double>(), 1.3 * std::sqrt(6.0)) << type;
  }
}

}  // namespace
}  // namespace muoncore::muon
