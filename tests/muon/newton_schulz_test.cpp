#include "muoncore/muon/newton_schulz.h"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muoncore/core/check.h"
#include "muoncore/muon/reference.h"
#include "tests/muon/golden.h"
#include "tests/muon/inputs.h"

namespace muoncore::muon {
namespace {

using testing::gaussian;
using testing::golden_manifest;
using testing::golden_tensor;
using ::testing::HasSubstr;
using testing::of_limit;
using testing::relative_error;
using ::testing::ThrowsMessage;

TEST(NewtonSchulz, EqualsTheGoldens) {
  for (const auto& c : golden_manifest().at("newton_schulz")) {
    SCOPED_TRACE(c.at("id").get<std::string>());
    NewtonSchulzOptions o;
    o.coefficient_type = c.at("coefficient_type");
    o.steps = c.at("steps");
    o.eps = c.at("eps").get<double>();
    o.precision = parse_matmul_precision(c.at("fp32_matmul_precision").get<std::string>());
    o.upstream_exact = true;
    if (c.contains("transpose") && !c.at("transpose").is_null())
      o.transpose = c.at("transpose").get<bool>();
    if (c.contains("custom_coefficient_sets"))
      for (const auto& t : c.at("custom_coefficient_sets"))
        o.custom_coefficients.push_back({t[0], t[1], t[2]});
    at::Tensor got = newton_schulz(golden_tensor("ns/" + c.at("input").get<std::string>()), o);
    EXPECT_LE(of_limit(got, golden_tensor("ns/" + c.at("id").get<std::string>()), c.at("atol"),
                       c.at("rtol")),
              1.0);
  }
}

const std::vector<std::vector<int64_t>> kShapes{{1, 1},   {1, 7},    {7, 1},    {2, 2},   {5, 3},
                                                {3, 5},   {16, 16},  {31, 17},  {17, 31}, {40, 64},
                                                {64, 40}, {3, 6, 4}, {2, 4, 6}, {1, 8, 8}};

NewtonSchulzOptions with_type(const std::string& type, int64_t steps) {
  NewtonSchulzOptions o;
  o.coefficient_type = type;
  o.steps = steps;
  return o;
}

TEST(NewtonSchulz, EqualsTheFp64Reference) {
  for (const auto& [type, steps] :
       std::vector<std::pair<std::string, int64_t>>{{"simple", 5},
                                                    {"quintic", 5},
                                                    {"polar_express", 5},
                                                    {"cans", 5},
                                                    {"aol", 4},
                                                    {"deepseekv4", 10},
                                                    {"cubic5", 5}})
    for (const auto& shape : kShapes) {
      SCOPED_TRACE(type + " [" + ::testing::PrintToString(shape) + "]");
      at::Tensor x = gaussian(shape);
      const auto o = with_type(type, steps);
      // an almost singular square is amplified by the product of all slopes: 8e4 for deepseekv4
      const double tolerance = type == "deepseekv4" ? 2e-2 : 3e-4;
      EXPECT_LE(relative_error(newton_schulz(x, o), reference::newton_schulz(x, o)), tolerance);
      EXPECT_LE(relative_error(newton_schulz(x.to(at::kDouble), o), reference::newton_schulz(x, o)),
                1e-10);
    }
}

TEST(NewtonSchulz, IsNearThePolarFactor) {
  at::Tensor x = gaussian({32, 96});
  at::Tensor polar = reference::polar_factor(x);
  EXPECT_LE(relative_error(newton_schulz(x, with_type("quintic", 5)), polar), 0.05);
  EXPECT_LE(relative_error(newton_schulz(x, with_type("deepseekv4", 10)), polar), 2e-3);
  EXPECT_LE(relative_error(newton_schulz(x, with_type("polar_express", 10)), polar), 1e-4);
}

TEST(NewtonSchulz, DirectionDoesNotDependOnScale) {
  at::Tensor x = gaussian({24, 40}, 7);
  at::Tensor one = newton_schulz(x, {});
  for (int exponent : {-100, -60, -30, 30, 60, 100}) {
    at::Tensor scaled = x * std::ldexp(1.0, exponent);
    EXPECT_TRUE(newton_schulz(scaled, {}).equal(one))
        << "2^" << exponent;  // a power of two changes no bit
  }
  for (double scale : {1e-30, 1e-20, 1e-12, 1e12, 1e20, 1e30})
    EXPECT_LE(relative_error(newton_schulz(x * scale, {}), one), 1e-5) << scale;
  EXPECT_LE(relative_error(newton_schulz(x * 1e-40, {}), one),
            2e-3);  // subnormal: the input itself is coarse
  at::Tensor largest = at::full({4, 6}, 3.4e38f);
  EXPECT_LE(relative_error(newton_schulz(largest, {}), newton_schulz(at::full({4, 6}, 1.0f), {})),
            2e-5);
  NewtonSchulzOptions medium;
  medium.precision = MatmulPrecision::kMedium;
  EXPECT_TRUE(newton_schulz(x * 0x1p-100, medium).equal(newton_schulz(x, medium)));
}

TEST(NewtonSchulz, NormalizesLikeThePlainQuotient) {
  NewtonSchulzOptions tiny_eps;
  tiny_eps.eps = 1e-30;
  at::Tensor x = gaussian({17, 23}, 3);
  EXPECT_TRUE(newton_schulz(x, {}).equal(newton_schulz(x, tiny_eps)));
}

TEST(NewtonSchulz, ExplicitEpsShrinksSmallInput) {
  NewtonSchulzOptions eps;
  eps.eps = 1e-7;
  at::Tensor x = gaussian({8, 12});
  at::Tensor small = x * (1e-9 / x.norm().item<double>());
  EXPECT_LE(relative_error(newton_schulz(small, eps), reference::newton_schulz(small, eps)), 1e-5);
  EXPECT_GT(relative_error(newton_schulz(small, eps), newton_schulz(small, {})), 0.2);
}

TEST(NewtonSchulz, ZeroStaysZero) {
  for (bool medium : {false, true}) {
    NewtonSchulzOptions o;
    if (medium) o.precision = MatmulPrecision::kMedium;
    EXPECT_TRUE(newton_schulz(at::zeros({6, 4}), o).equal(at::zeros({6, 4})));
    EXPECT_TRUE(newton_schulz(at::zeros({0, 4}), o).equal(at::zeros({0, 4})));
    EXPECT_TRUE(newton_schulz(at::zeros({2, 4, 0}), o).equal(at::zeros({2, 4, 0})));
  }
}

TEST(NewtonSchulz, RankOneBecomesItsDirection) {
  at::Tensor u = gaussian({12, 1}, 1), v = gaussian({1, 20}, 2);
  at::Tensor x = u.matmul(v), direction = reference::polar_factor(x, 1e-5);
  for (const auto& [type, steps, at_one] : std::vector<std::tuple<std::string, int64_t, double>>{
           {"quintic", 5, 0.9783}, {"simple", 5, 0.6964}, {"polar_express", 5, 1.0273}}) {
    EXPECT_LE(relative_error(newton_schulz(x, with_type(type, steps)), direction * at_one), 2e-4)
        << type;
  }
  for (const auto& [type, steps] :
       std::vector<std::pair<std::string, int64_t>>{{"aol", 4}, {"cans", 5}, {"cans", 9}})
    for (bool medium :
         {false, true}) {  // upstream's aol turns it round, its cans reaches 1e12 in bf16
      auto o = with_type(type, steps);
      if (medium) o.precision = MatmulPrecision::kMedium;
      const double along = (newton_schulz(x, o).to(at::kDouble) * direction).sum().item<double>();
      EXPECT_GT(along, 0.6) << type << medium;
      EXPECT_LT(along, 1.3) << type << medium;
    }
}

TEST(NewtonSchulz, SlicesAreIndependent) {
  at::Tensor x = gaussian({3, 20, 12});
  x.select(0, 0).mul_(1e-20);
  x.select(0, 1).zero_();
  at::Tensor batch = newton_schulz(x, {});
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_LE((batch.select(0, i) - newton_schulz(x.select(0, i), {})).abs().max().item<double>(),
              2e-6)
        << i;
  x.select(0, 2).fill_(NAN);
  at::Tensor poisoned = newton_schulz(x, {});
  EXPECT_TRUE(poisoned.select(0, 0).equal(batch.select(0, 0)));
  EXPECT_TRUE(poisoned.select(0, 1).equal(batch.select(0, 1)));
  EXPECT_TRUE(poisoned.select(0, 2).isnan().all().item<bool>());
}

TEST(NewtonSchulz, NotANumberAndInfinityAreNotHidden) {
  at::Tensor x = gaussian({6, 9});
  x[2][3] = NAN;
  EXPECT_TRUE(newton_schulz(x, {}).isnan().all().item<bool>());
  x[2][3] = INFINITY;
  EXPECT_TRUE(newton_schulz(x, {}).isnan().any().item<bool>());
}

TEST(NewtonSchulz, StridesDoNotMatter) {
  at::Tensor x = gaussian({20, 30});
  at::Tensor plain = newton_schulz(x, {});
  at::Tensor wide = gaussian({40, 60}).zero_();
  wide.slice(0, 0, 40, 2).slice(1, 0, 60, 2).copy_(x);
  EXPECT_LE(relative_error(newton_schulz(wide.slice(0, 0, 40, 2).slice(1, 0, 60, 2), {}), plain),
            1e-6);
  EXPECT_LE(relative_error(newton_schulz(x.t().contiguous().t(), {}), plain), 1e-6);
  EXPECT_LE(relative_error(newton_schulz(x.t(), {}), plain.t()), 1e-6);
}

TEST(NewtonSchulz, InputIsNotWrittenAndOutputIsNew) {
  for (auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (bool medium : {false, true}) {
      NewtonSchulzOptions o;
      if (medium) o.precision = MatmulPrecision::kMedium;
      at::Tensor x = gaussian({8, 8}, 5, dtype), before = x.clone();
      at::Tensor y = newton_schulz(x, o);
      EXPECT_TRUE(x.equal(before));
      EXPECT_FALSE(y.is_alias_of(x));
      EXPECT_EQ(y.scalar_type(), dtype);
    }
  }
  at::Tensor leaf = gaussian({4, 6}).requires_grad_();
  EXPECT_FALSE(newton_schulz(leaf, {}).requires_grad());
}

TEST(NewtonSchulz, MediumIsWithinTheErrorOfBf16) {
  NewtonSchulzOptions medium;
  medium.precision = MatmulPrecision::kMedium;
  at::Tensor x = gaussian({128, 512});
  EXPECT_LE(relative_error(newton_schulz(x, medium), reference::newton_schulz(x, {})), 2e-2);
  EXPECT_GE(relative_error(newton_schulz(x, medium), reference::newton_schulz(x, {})),
            1e-4);  // really bf16
}

TEST(NewtonSchulz, LeavesTheProcessWidePrecisionAlone) {
  const auto before = at::globalContext().float32MatmulPrecision();
  NewtonSchulzOptions medium;
  medium.precision = MatmulPrecision::kMedium;
  newton_schulz(gaussian({8, 8}), medium);
  EXPECT_EQ(at::globalContext().float32MatmulPrecision(), before);
}

TEST(NewtonSchulz, ForcedTransposeGivesTheSame) {
  at::Tensor x = gaussian({12, 30});
  NewtonSchulzOptions forced;
  forced.transpose = true;
  EXPECT_LE(relative_error(newton_schulz(x, forced), newton_schulz(x, {})), 1e-5);
  forced.transpose = false;
  EXPECT_LE(relative_error(newton_schulz(x.t(), forced), newton_schulz(x.t(), {})), 1e-5);
}

TEST(NewtonSchulz, RefusesWhatIsNoMatrix) {
  EXPECT_THAT([] { newton_schulz(at::zeros({4}), {}); },
              ThrowsMessage<Error>(HasSubstr("got 1 dimensions")));
  EXPECT_THAT(
      [] {
        newton_schulz(at::zeros({1, 1, 4, 4}), {});
      },
      ThrowsMessage<Error>(HasSubstr("got 4 dimensions")));
  EXPECT_THAT(
      [] {
        newton_schulz(at::zeros({4, 4}, at::kLong), {});
      },
      ThrowsMessage<Error>(HasSubstr("floating-point")));
  EXPECT_THAT([] { parse_matmul_precision("low"); },
              ThrowsMessage<Error>(HasSubstr("highest, high, medium")));
}

}  // namespace
}  // namespace muoncore::muon
