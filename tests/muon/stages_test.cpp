// The stages around the orthogonalization, each against plain loops in fp64 and at the edges.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "muoncore/core/check.h"
#include "muoncore/muon/hyperball.h"
#include "muoncore/muon/orthogonalize.h"
#include "muoncore/muon/reference.h"
#include "muoncore/muon/rounding.h"
#include "muoncore/muon/second_moment.h"
#include "muoncore/muon/update_rule.h"
#include "tests/muon/inputs.h"

namespace muoncore::muon {
namespace {

using testing::gaussian;
using ::testing::HasSubstr;
using testing::relative_error;
using ::testing::ThrowsMessage;

constexpr std::array kPre{PreTransform::kNone, PreTransform::kSign, PreTransform::kMuonEqRows,
                          PreTransform::kMuonEqColumns, PreTransform::kMuonEqBoth};
constexpr std::array kPost{PostTransform::kNone,        PostTransform::kRows,
                           PostTransform::kColumns,     PostTransform::kColumnsRows,
                           PostTransform::kRowsColumns, PostTransform::kFrobenius};

const std::vector<std::vector<int64_t>> kShapes{{1, 1}, {1, 9}, {9, 1}, {7, 5}, {3, 5, 8}};

TEST(PreTransform, EqualsPlainLoops) {
  for (const auto& shape : kShapes)
    for (PreTransform transform : kPre) {
      const at::Tensor u = gaussian(shape, 3), before = u.clone();
      const at::Tensor got = apply_pre_transform(u, transform);
      EXPECT_LE(relative_error(got, reference::pre_transform(u, transform)), 1e-6)
          << ::testing::PrintToString(shape) << static_cast<int>(transform);
      EXPECT_TRUE(u.equal(before));
      EXPECT_EQ(got.is_same(u), transform == PreTransform::kNone);
    }
}

// By hand: rows of length 5 and 10, columns of length 3, 4 (and then their doubles).
TEST(PreTransform, MuonEqByHand) {
  const at::Tensor u = at::zeros({2, 2});
  u[0][0] = 3, u[0][1] = 4, u[1][0] = 6, u[1][1] = 8;
  const at::Tensor rows = apply_pre_transform(u, PreTransform::kMuonEqRows);
  EXPECT_NEAR(rows[0][0].item<double>(), 0.6, 1e-6);
  EXPECT_NEAR(rows[1][1].item<double>(), 0.8, 1e-6);
  const at::Tensor columns = apply_pre_transform(u, PreTransform::kMuonEqColumns);
  EXPECT_NEAR(columns[0][0].item<double>(), 3 / std::sqrt(45.0), 1e-6);
  // both: u_ij / (row length * column length), up to the size that Newton-Schulz takes away
  const at::Tensor both = apply_pre_transform(u, PreTransform::kMuonEqBoth);
  EXPECT_NEAR((both[0][0] / both[0][1]).item<double>(), 1.0, 1e-6);
  EXPECT_NEAR((both[0][0] / both[1][1]).item<double>(), 1.0, 1e-6);
}

TEST(PreTransform, NoScaleOfTheMomentumChangesTheResult) {
  for (PreTransform transform : kPre) {
    if (transform == PreTransform::kNone) continue;
    const at::Tensor u = gaussian({6, 10}, 4);
    const at::Tensor expected = apply_pre_transform(u, transform);
    for (double scale : {1e-30, 1e-12, 1e12, 1e30})
      EXPECT_LE(relative_error(apply_pre_transform(u * scale, transform), expected), 1e-5) << scale;
  }
}

TEST(PreTransform, ZerosStayZeroAndSlicesAreAlone) {
  for (PreTransform transform : kPre) {
    EXPECT_TRUE(apply_pre_transform(at::zeros({4, 3}), transform).equal(at::zeros({4, 3})));
    EXPECT_EQ(apply_pre_transform(at::zeros({0, 3}), transform).numel(), 0);
    at::Tensor batch = gaussian({3, 4, 6}, 5);
    batch[1].mul_(1e-20);
    batch[2].zero_();
    batch[0][2].zero_();
    const at::Tensor got = apply_pre_transform(batch, transform);
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_LE(relative_error(got[i], apply_pre_transform(batch[i], transform)), 1e-6) << i;
    EXPECT_TRUE(got[0][2].equal(at::zeros({6})));
    EXPECT_TRUE(got.isfinite().all().item<bool>());
  }
}

TEST(PostTransform, EqualsPlainLoops) {
  for (const auto& shape : kShapes)
    for (PostTransform transform : kPost) {
      at::Tensor update = gaussian(shape, 6) * 0.3;
      const at::Tensor expected = reference::post_transform(update, transform);
      apply_post_transform_(update, transform);
      EXPECT_LE(relative_error(update, expected), 1e-5)
          << ::testing::PrintToString(shape) << static_cast<int>(transform);
    }
}

TEST(PostTransform, LengthsAreWhatTheyPromise) {
  const at::Tensor source = gaussian({6, 9}, 7);
  at::Tensor x = source.clone();
  apply_post_transform_(x, PostTransform::kRows);
  EXPECT_LE((x.norm(2, 1) - 1).abs().max().item<double>(), 1e-6);
  x = source.clone();
  apply_post_transform_(x, PostTransform::kRowsColumns);  // columns come last
  EXPECT_LE((x.norm(2, 0) - 1).abs().max().item<double>(), 1e-6);
  x = source.clone();
  apply_post_transform_(x, PostTransform::kFrobenius);
  EXPECT_NEAR(x.norm().item<double>(), std::sqrt(6.0), 1e-5);
  x = at::zeros({6, 9});
  for (PostTransform transform : kPost) {
    apply_post_transform_(x, transform);
    EXPECT_TRUE(x.equal(at::zeros({6, 9})));
  }
}

// The stages in their order, against the reference of each.
TEST(Orthogonalize, ComposesItsStages) {
  for (PreTransform pre : {PreTransform::kNone, PreTransform::kMuonEqBoth})
    for (PostTransform post :
         {PostTransform::kNone, PostTransform::kRows, PostTransform::kFrobenius}) {
      OrthogonalizeOptions o{.pre = pre, .newton_schulz = {}, .post = post};
      const std::vector<at::Tensor> inputs{gaussian({6, 10}, 1), gaussian({2, 9, 4}, 2)};
      std::vector<at::Tensor> before;
      for (const at::Tensor& x : inputs) before.push_back(x.clone());
      const auto got = orthogonalize_directions(inputs, o);
      for (size_t i = 0; i < inputs.size(); ++i) {
        const at::Tensor expected = reference::post_transform(
            reference::newton_schulz(reference::pre_transform(inputs[i], pre), {}), post);
        EXPECT_LE(relative_error(got[i], expected), 1e-4) << i;
        EXPECT_TRUE(inputs[i].equal(before[i]));
      }
    }
  EXPECT_TRUE(orthogonalize_directions({}, {}).empty());
}

TEST(Words, UnknownOnesNameTheNearest) {
  EXPECT_THAT([] { parse_pre_transform("muoneq_row"); },
              ThrowsMessage<Error>(HasSubstr("did you mean muoneq_rows?")));
  EXPECT_THAT([] { parse_post_transform("frobenious"); },
              ThrowsMessage<Error>(HasSubstr("did you mean frobenius?")));
  EXPECT_THAT([] { parse_momentum_kind("clasical"); },
              ThrowsMessage<Error>(HasSubstr("did you mean classical?")));
  EXPECT_EQ(parse_pre_transform("muoneq_both"), PreTransform::kMuonEqBoth);
  EXPECT_EQ(parse_post_transform("muon_plus_rows_columns"), PostTransform::kRowsColumns);
}

TEST(Momentum, ClassicalIsTheEmaOverOneMinusMomentum) {
  at::Tensor ema = at::zeros({4, 5}, at::kDouble), classical = ema.clone();
  for (uint64_t k = 0; k < 5; ++k) {
    const at::Tensor g = gaussian({4, 5}, k, at::kDouble);
    update_momentum_(ema, g, 0.9, MomentumKind::kEma);
    update_momentum_(classical, g, 0.9, MomentumKind::kClassical);
    EXPECT_LE(relative_error(classical, ema / 0.1), 1e-14);
    EXPECT_LE(relative_error(momentum_direction(classical, g, 0.9, true, MomentumKind::kClassical),
                             momentum_direction(ema, g, 0.9, true, MomentumKind::kEma) / 0.1),
              1e-14);
  }
  EXPECT_TRUE(
      momentum_direction(classical, ema, 0.9, false, MomentumKind::kClassical).is_same(classical));
}

TEST(Hyperball, FactorsBringEverySliceToItsLength) {
  at::Tensor x = gaussian({3, 4, 5}, 8);
  x[1].zero_();
  x[2].fill_(1e-17);  // a norm below the epsilon counts as zero
  const at::Tensor lengths = at::full({3, 1, 1}, 2.5, at::kDouble);
  const at::Tensor scaled = x * factor_to_norm(x, lengths, kHyperballEps);
  EXPECT_EQ(scaled.scalar_type(), at::kFloat);
  EXPECT_NEAR(scaled[0].norm().item<double>(), 2.5, 1e-6);
  EXPECT_TRUE(scaled[1].equal(at::zeros({4, 5})));
  EXPECT_TRUE(scaled[2].equal(at::zeros({4, 5})));
}

// A gradient whose squared norm no fp32 holds.
TEST(SecondMoment, NamoNeitherOverflowsNorUnderflows) {
  for (double size : {1e-18, 1.0, 1e25}) {
    const at::Tensor g = gaussian({5, 7}, 9) * size;
    at::Tensor update = gaussian({5, 7}, 10), v = at::zeros({1, 1}, at::kDouble);
    const at::Tensor before = update.clone();
    const double eps = 1e-8 * size;
    apply_second_moment_(update, v, SecondMoment::kNamo, 0.95, eps, g, matrix_norm(g));
    const double norm = g.to(at::kDouble).norm().item<double>();
    EXPECT_LE(relative_error(update, before * (norm / (std::sqrt(0.05) * norm + eps))), 1e-6)
        << size;
  }
}

// The mean over keys of a value that lies 0.3 between two neighbours: 4 standard deviations.
TEST(StochasticRounding, IsUnbiasedAndHitsOnlyTheNeighbours) {
  constexpr int kKeys = 4000;
  const double low = 1.0, gap = std::pow(2.0, -7);  // neighbours of bf16 in [1, 2)
  for (double fraction : {0.0, 1.0 / 65536, 0.3, 0.5, 0.99}) {
    for (double sign : {1.0, -1.0}) {
      const at::Tensor x = at::full({1}, sign * (low + fraction * gap), at::kDouble).to(at::kFloat);
      int up = 0;
      for (uint64_t key = 0; key < kKeys; ++key) {
        const double got =
            sign * round_stochastically(x, CounterRng({key})).to(at::kDouble).item<double>();
        ASSERT_TRUE(got == low || got == low + gap) << got;
        up += got != low;
      }
      const double deviation = std::sqrt(kKeys * fraction * (1 - fraction));
      EXPECT_NEAR(up, kKeys * fraction, 4 * deviation + 1e-9) << fraction;
    }
  }
}

TEST(StochasticRounding, TheGridTheEdgesAndWhatIsNotFiniteStay) {
  const at::Tensor grid = gaussian({40, 50}, 1, at::kBFloat16).to(at::kFloat);
  EXPECT_TRUE(round_stochastically(grid, CounterRng({1})).to(at::kFloat).equal(grid));
  const float inf = std::numeric_limits<float>::infinity();
  at::Tensor x = at::zeros({4});
  x[0] = inf, x[1] = -inf, x[2] = std::nanf(""), x[3] = -0.0f;
  const at::Tensor got = round_stochastically(x, CounterRng({2})).to(at::kFloat);
  EXPECT_EQ(got[0].item<float>(), inf);
  EXPECT_EQ(got[1].item<float>(), -inf);
  EXPECT_TRUE(std::isnan(got[2].item<float>()));
  EXPECT_TRUE(std::signbit(got[3].item<float>()));
  EXPECT_EQ(round_stochastically(at::zeros({0, 3}), CounterRng({3})).numel(), 0);
  EXPECT_THAT([] { round_stochastically(at::zeros({2}, at::kDouble), CounterRng({4})); },
              ThrowsMessage<Error>(HasSubstr("Double")));
}

// Element i draws at counter i: neither strides nor the size of the tensor around it matter.
TEST(StochasticRounding, DependsOnThePlaceAlone) {
  const at::Tensor x = gaussian({30, 70}, 2);
  const CounterRng rng({7});
  const at::Tensor whole = round_stochastically(x, rng);
  EXPECT_TRUE(round_stochastically(x.t().contiguous().t(), rng).equal(whole));
  EXPECT_TRUE(round_stochastically(x.slice(0, 0, 11), rng).equal(whole.slice(0, 0, 11)));
  EXPECT_FALSE(round_stochastically(x, CounterRng({8})).equal(whole));
  EXPECT_LE(relative_error(whole, x), 8e-3);
}

}  // namespace
}  // namespace muoncore::muon
