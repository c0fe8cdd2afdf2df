// The balanced layout on models whose answer is known and on random sets of parameters.
#include "muoncore/parallel/balanced_layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"

namespace muoncore::parallel {
namespace {

LayoutParam matrix(int64_t rows, int64_t cols) { return {"w", {rows, cols}, true}; }
LayoutParam vector(int64_t size) { return {"v", {size}}; }

// What balanced_layout.h promises beyond check_layout.
void check_promises(const ParamLayout& layout, const std::vector<LayoutParam>& params,
                    const LayoutOptions& options) {
  check_layout(layout, params, options.dp);
  for (const BufferLayout* buffer : {&layout.whole, &layout.cut}) {
    int64_t unpadded = 0, last_bucket = 0;
    for (const Placement& p : buffer->placements) {
      unpadded += p.end - p.start;
      ASSERT_GE(p.bucket, last_bucket);
      last_bucket = p.bucket;
    }
    ASSERT_EQ(buffer->numel_unpadded(), unpadded);
    ASSERT_LE(buffer->numel() - unpadded,
              (kParamAlignment - 1) * static_cast<int64_t>(buffer->placements.size()));
    for (const Bucket& bucket : buffer->buckets)
      for (int64_t cut : bucket.shards) ASSERT_EQ(cut % kParamAlignment, 0);
  }
}

int64_t largest_cost(const std::vector<OwnedLoad>& loads) {
  int64_t most = 0;
  for (const OwnedLoad& load : loads) most = std::max(most, load.cost);
  return most;
}

TEST(NsCost, CountsTheWideOrientationOfEverySlice) {
  EXPECT_EQ(ns_cost({3, 5}), 4 * 9 * 5 + 2 * 27);
  EXPECT_EQ(ns_cost({5, 3}), ns_cost({3, 5}));
  EXPECT_EQ(ns_cost({7, 5, 3}), 7 * ns_cost({3, 5}));
  EXPECT_EQ(ns_cost({4, 4}), 6 * 64);
  EXPECT_EQ(ns_cost({1, 9}), 38);
  EXPECT_EQ(ns_cost({100}), 0);
  EXPECT_EQ(ns_cost({}), 0);
  EXPECT_EQ(ns_cost({151936, 4096}), 4 * 4096LL * 4096 * 151936 + 2 * 4096LL * 4096 * 4096);
}

TEST(BalancedLayout, LiesInBackwardOrderWithSharesInRankOrder) {
  // Forward order: 64 x 4 each, and a bias before and after.
  std::vector<LayoutParam> params{vector(10),    matrix(64, 4), matrix(64, 4),
                                  matrix(64, 4), matrix(64, 4), vector(100)};
  LayoutOptions options{2, 512};
  ParamLayout layout = balanced_layout(params, options);
  check_promises(layout, params, options);
  // Each bucket holds two matrices, the later one first, one per rank.
  std::vector<Placement> whole{
      {4, 0, 256, 0, 0}, {3, 256, 512, 0, 1}, {2, 512, 768, 1, 0}, {1, 768, 1024, 1, 1}};
  EXPECT_EQ(layout.whole.placements, whole);
  std::vector<Bucket> buckets{{0, 512, 512, {0, 256, 512}}, {512, 1024, 512, {512, 768, 1024}}};
  EXPECT_EQ(layout.whole.buckets, buckets);
  std::vector<Placement> cut{{5, 0, 100, 0}, {0, 128, 138, 0}};
  EXPECT_EQ(layout.cut.placements, cut);
  EXPECT_EQ(layout.cut.buckets, (std::vector<Bucket>{{0, 192, 110, {0, 64, 192}}}));
}

TEST(BalancedLayout, SharedEmbeddingsStandApart) {
  std::vector<LayoutParam> params{vector(64), vector(128), vector(256), vector(64)};
  params[1].shared_embedding = true;
  for (bool bucketed : {false, true}) {
    LayoutOptions options{4};
    if (bucketed) options.bucket_size = 1;
    ParamLayout layout = balanced_layout(params, options);
    check_promises(layout, params, options);
    std::vector<int64_t> sizes;
    for (const Bucket& bucket : layout.cut.buckets) sizes.push_back(bucket.end - bucket.start);
    EXPECT_EQ(sizes, bucketed ? (std::vector<int64_t>{64, 256, 128, 64})
                              : (std::vector<int64_t>{320, 128, 64}));
  }
}

// Two stages that hold a shared embedding cut it alike, whatever else they own.
TEST(BalancedLayout, ASharedEmbeddingIsCutAlikeOnEveryStage) {
  LayoutParam embedding = vector(64 * 10);
  embedding.shared_embedding = true;
  for (int64_t dp : {1, 3, 4, 16}) {
    const ParamLayout first = balanced_layout({embedding, vector(5000)}, {dp}),
                      last = balanced_layout({matrix(70, 90), matrix(20, 30), embedding}, {dp});
    const auto& a = first.cut.buckets.back().shards;
    const auto& b = last.cut.buckets.front().shards;
    for (int64_t r = 0; r <= dp; ++r) EXPECT_EQ(a[r] - a[0], b[r] - b[0]) << dp;
  }
}

TEST(BalancedLayout, TheLastEmbeddingOpensNoEmptyBucket) {
  std::vector<LayoutParam> params{vector(64), vector(128)};
  params[1].shared_embedding = true;
  EXPECT_EQ(balanced_layout(params, {2}).cut.buckets.size(), 2u);
  EXPECT_EQ(balanced_layout({params[1]}, {2}).cut.buckets.size(), 1u);
}

TEST(BalancedLayout, SwapsMendWhatGreedyDealingLeaves) {
  // LPT puts 18 + 14 + 14 on four ranks; 3 x 14 and 18 + 18 + 6 is even (GPT-2's layers on 16).
  std::vector<LayoutParam> params;
  for (int layer = 0; layer < 12; ++layer)
    for (auto [rows, cols] : {std::pair{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}})
      params.push_back(matrix(rows, cols));
  const ParamLayout layout = balanced_layout(params, {16, 16'000'000});
  const auto loads = owned_loads(layout, params, 16);
  EXPECT_EQ(loads, std::vector<OwnedLoad>(16, loads[0]));
}

TEST(BalancedLayout, EqualParametersAreSpreadOverTheBuckets) {
  std::vector<LayoutParam> params(32, matrix(64, 64));
  const ParamLayout layout = balanced_layout(params, {4, 8 * 64 * 64});
  ASSERT_EQ(layout.whole.buckets.size(), 4u);
  for (const Bucket& bucket : layout.whole.buckets)
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(bucket.shards[rank + 1] - bucket.shards[rank], 2 * 64 * 64);
}

TEST(BalancedLayout, TheCutBufferEvensOutWhatRanksStore) {
  // Three equal matrices on four ranks: the fourth takes its share of the embedding instead.
  std::vector<LayoutParam> params{
      {"e", {1024, 64}}, matrix(64, 64), matrix(64, 64), matrix(64, 64)};
  for (const OwnedLoad& load : owned_loads(balanced_layout(params, {4}), params, 4))
    EXPECT_NEAR(load.numel, (1024 * 64 + 3 * 64 * 64) / 4, 64);
  // Not enough to even out: the ranks with matrices take nothing.
  params[0].shape = {1, 640};
  EXPECT_EQ(balanced_layout(params, {4}).cut.buckets[0].shards,
            (std::vector<int64_t>{0, 0, 0, 0, 640}));
}

TEST(BalancedLayout, LoadsOfEarlierChunksCount) {
  std::vector<LayoutParam> params{matrix(64, 64)};
  LayoutOptions options{3};
  options.before = {{10, 0}, {0, 7}, {0, 5}};
  EXPECT_EQ(balanced_layout(params, options).whole.placements[0].owner, 2);
  options.before.pop_back();
  EXPECT_THROW(balanced_layout(params, options), Error);
}

TEST(BalancedLayout, AGivenCostIsWhatIsBalanced) {
  // Two shards of one shape, one of which costs its owner three times as much.
  std::vector<LayoutParam> params(4, matrix(64, 64));
  for (auto& p : params) p.cost = 1;
  params[0].cost = 3;
  auto loads = owned_loads(balanced_layout(params, {2}), params, 2);
  EXPECT_EQ(loads[0].cost, 3);
  EXPECT_EQ(loads[1].cost, 3);
}

TEST(BalancedLayout, OddCases) {
  const LayoutOptions options{5};
  const ParamLayout none = balanced_layout({}, options);
  check_promises(none, {}, options);
  EXPECT_EQ(none.whole.numel() + none.cut.numel(), 0);
  EXPECT_EQ(owned_loads(none, {}, 5), std::vector<OwnedLoad>(5));

  for (const LayoutParam& one : {matrix(3, 5), vector(1), vector(1000)}) {
    const ParamLayout layout = balanced_layout({one}, options);
    check_promises(layout, {one}, options);
    int holders = 0;
    for (auto& load : owned_loads(layout, {one}, 5)) holders += load.numel > 0;
    EXPECT_EQ(holders, one.numel() == 1000 ? 5 : 1);
  }
  EXPECT_THROW(balanced_layout({matrix(0, 4)}, options), Error);
  EXPECT_THROW(balanced_layout({}, {0}), Error);
  EXPECT_THROW(balanced_layout({}, {1, 0}), Error);
}

struct RandomCase {
  std::vector<LayoutParam> params;
  LayoutOptions options;
};

RandomCase random_case(uint64_t seed) {
  CounterRng rng({seed, hash_name("balanced_layout_test")});
  uint64_t draw = 0;
  auto below = [&](uint64_t n) { return static_cast<int64_t>(rng.below(draw++, n)); };
  RandomCase c;
  c.options.dp = 1 + below(64);
  if (below(3) > 0) c.options.bucket_size = 1 + below(200'000);
  const int64_t count = below(4) == 0 ? below(4) : below(120);
  const int64_t shapes = 1 + below(8);  // few shapes, as in models, or all different
  std::vector<std::vector<int64_t>> known;
  for (int64_t i = 0; i < count; ++i) {
    LayoutParam p{fmt::format("p{}", i), {1 + below(200), 1 + below(200)}, below(3) > 0};
    if (below(2) == 0 && static_cast<int64_t>(known.size()) >= shapes)
      p.shape = known[below(known.size())];
    if (!p.whole && below(2) == 0) p.shape.pop_back();
    if (p.whole && below(10) == 0) p.shape.insert(p.shape.begin(), 1 + below(4));
    p.shared_embedding = !p.whole && below(20) == 0;
    known.push_back(p.shape);
    if (known.back().size() < 2) known.back() = {1 + below(200), 3};
    c.params.push_back(std::move(p));
  }
  return c;
}

TEST(BalancedLayout, RandomSetsKeepEveryPromise) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const auto [params, options] = random_case(seed);
    const ParamLayout layout = balanced_layout(params, options);
    check_promises(layout, params, options);
    if (HasFatalFailure()) return;
    EXPECT_EQ(layout, balanced_layout(params, options));
    // Graham's bound for any list schedule, which no later swap gives up.
    int64_t sum = 0, largest = 0, owned = 0;
    for (auto& p : params) {
      if (!p.whole) continue;
      sum += ns_cost(p.shape);
      largest = std::max(largest, ns_cost(p.shape));
      ++owned;
    }
    const int64_t got = largest_cost(owned_loads(layout, params, options.dp));
    EXPECT_LE(got, owned <= options.dp ? largest : sum / options.dp + largest);
  }
}

// How good the search is: the exact optimum by trying everything, on sets small enough for that.
TEST(BalancedLayout, SmallSetsComeNearTheOptimum) {
  double worst = 1, sum = 0;
  constexpr int kCases = 200;
  for (uint64_t seed = 0; seed < kCases; ++seed) {
    CounterRng rng({seed, hash_name("optimum")});
    std::vector<LayoutParam> params;
    for (int i = 0; i < 9; ++i) {
      params.push_back(matrix(64, 64));
      params.back().cost = static_cast<int64_t>(1 + rng.below(i, 100));
    }
    int64_t best = INT64_MAX;
    for (int code = 0; code < 19683; ++code) {  // 3^9 ways
      std::vector<int64_t> load(3);
      for (int i = 0, rest = code; i < 9; ++i, rest /= 3) load[rest % 3] += params[i].cost;
      best = std::min(best, *std::max_element(load.begin(), load.end()));
    }
    const double ratio =
        static_cast<double>(largest_cost(owned_loads(balanced_layout(params, {3}), params, 3))) /
        static_cast<double>(best);
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_LE(worst, 1.07);
  EXPECT_LE(sum / kCases, 1.01);
}

TEST(HashLayout, ChangesWithAnything) {
  std::vector<LayoutParam> params{matrix(64, 4), matrix(64, 4), vector(100)};
  const ParamLayout layout = balanced_layout(params, {2});
  const uint64_t hash = hash_layout(layout, params);
  EXPECT_EQ(hash, hash_layout(layout, params));
  auto differs = [&](auto change) {
    ParamLayout other = layout;
    auto others = params;
    change(other, others);
    EXPECT_NE(hash, hash_layout(other, others));
  };
  differs(
      [](auto& l, auto&) { std::swap(l.whole.placements[0].owner, l.whole.placements[1].owner); });
  differs([](auto& l, auto&) { l.cut.buckets[0].shards[1] += 64; });
  differs([](auto& l, auto&) { std::swap(l.whole, l.cut); });
  differs([](auto&, auto& p) { p[0].name = "x"; });
  differs([](auto&, auto& p) { p[0].shape = {4, 64}; });
  differs([](auto&, auto& p) { p[2].shared_embedding = true; });
}

TEST(LayoutKind, IsReadByName) {
  EXPECT_EQ(parse_layout_kind("balanced"), LayoutKind::kBalanced);
  EXPECT_EQ(parse_layout_kind("megatron"), LayoutKind::kMegatron);
  EXPECT_STREQ(to_string(LayoutKind::kMegatron), "megatron");
  try {
    parse_layout_kind("balancd");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "layout 'balancd' is neither balanced nor megatron; did you mean balanced?");
  }
}

TEST(LayoutKind, ChoosesTheAlgorithm) {
  std::vector<LayoutParam> params(3, matrix(64, 64));
  EXPECT_EQ(compute_layout(LayoutKind::kBalanced, params, {2}), balanced_layout(params, {2}));
  EXPECT_EQ(compute_layout(LayoutKind::kMegatron, params, {2}), megatron_layout(params, {2}));
}

}  // namespace
}  // namespace muoncore::parallel
