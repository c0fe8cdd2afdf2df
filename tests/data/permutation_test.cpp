#include "muoncore/data/permutation.h"

#include <gtest/gtest.h>

#include <set>

#include "muoncore/core/check.h"
#include "muoncore/data/split.h"

namespace muoncore::data {
namespace {

TEST(KeyedPermutation, EveryItemOnceForEverySize) {
  for (int64_t n : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097}) {
    std::set<int64_t> seen;
    KeyedPermutation order(CounterRng({7, static_cast<uint64_t>(n)}), n);
    for (int64_t i = 0; i < n; ++i) {
      int64_t item = order(i);
      ASSERT_GE(item, 0);
      ASSERT_LT(item, n);
      seen.insert(item);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), n);
  }
}

TEST(KeyedPermutation, LargestSizesWork) {
  int64_t n = int64_t{1000000000} * 1000000000;  // pairs of nine-digit numbers
  KeyedPermutation order(CounterRng({1}), n);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) seen.insert(order(n - 1 - i));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_LT(*seen.rbegin(), n);
  EXPECT_LT(*seen.begin(), n / 20);  // spread over the whole range
  EXPECT_GT(*seen.rbegin(), n - n / 20);
}

// Neighbours in position are not neighbours in item: mean distance of a random permutation is n
// / 3.
TEST(KeyedPermutation, ShufflesWellAndByKey) {
  const int64_t n = 10000;
  KeyedPermutation a(CounterRng({1}), n), b(CounterRng({2}), n);
  double distance = 0;
  int fixed = 0, same = 0;
  for (int64_t i = 0; i + 1 < n; ++i) {
    distance += std::abs(static_cast<double>(a(i) - a(i + 1)));
    fixed += a(i) == i;
    same += a(i) == b(i);
  }
  EXPECT_NEAR(distance / n, n / 3.0, n / 30.0);
  EXPECT_LT(fixed, 10);
  EXPECT_LT(same, 10);
}

TEST(KeyedPermutation, OutOfRangeThrows) {
  EXPECT_THROW(KeyedPermutation(CounterRng({1}), 0), Error);
  KeyedPermutation order(CounterRng({1}), 5);
  EXPECT_THROW(order(5), Error);
  EXPECT_THROW(order(-1), Error);
}

TEST(ShuffledItem, EpochsAreDifferentPermutationsOrTheFilesOrder) {
  const int64_t n = 50;
  std::vector<int64_t> first, second;
  for (int64_t i = 0; i < n; ++i) {
    first.push_back(shuffled_item(3, 9, i, n, true));
    second.push_back(shuffled_item(3, 9, n + i, n, true));
    EXPECT_EQ(shuffled_item(3, 9, n + i, n, false), i);
  }
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()),
            std::set<int64_t>(second.begin(), second.end()));
  EXPECT_THROW(shuffled_item(3, 9, -1, n, true), Error);
  EXPECT_THROW(shuffled_item(3, 9, 0, 0, false), Error);
}

TEST(HeldOutSplit, NoSeedTrainsOnWhatAnyRunHoldsOut) {
  const int64_t n = 100;
  HeldOutSplit large("task", n, 20), small("task", n, 5);
  std::set<int64_t> held_out, small_held_out;
  for (int64_t i = 0; i < 20; ++i) held_out.insert(large.eval_item(i));
  for (int64_t i = 0; i < 5; ++i) small_held_out.insert(small.eval_item(i));
  EXPECT_EQ(held_out.size(), 20u);
  EXPECT_TRUE(std::includes(held_out.begin(), held_out.end(), small_held_out.begin(),
                            small_held_out.end()));
  EXPECT_EQ(large.train_size(), 80);
  EXPECT_EQ(small.train_size(), 90);  // a tenth is always kept apart
  for (uint64_t seed = 0; seed < 5; ++seed) {
    std::set<int64_t> epoch;
    for (int64_t i = 0; i < 80; ++i) epoch.insert(large.train_item(seed, "prompts", i));
    EXPECT_EQ(epoch.size(), 80u);
    for (int64_t item : epoch) EXPECT_FALSE(held_out.contains(item));
  }
  EXPECT_THROW(large.eval_item(20), Error);
  EXPECT_THROW(HeldOutSplit("task", n, 51), Error);
  EXPECT_THROW(HeldOutSplit("task", n, 0), Error);
}

}  // namespace
}  // namespace muoncore::data
