#include "muoncore/core/rng.h"

#include <gtest/gtest.h>

#include <set>

namespace muoncore {
namespace {

// Known answers of the Philox paper's reference implementation (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRng, StreamsDependOnEveryWordAndItsPlace) {
  std::set<uint64_t> seen;
  for (auto rng : {CounterRng({1, 2}), CounterRng({2, 1}), CounterRng({1}), CounterRng({1, 2, 0}),
                   CounterRng({0, 1, 2}), CounterRng({})})
    for (uint64_t i = 0; i < 100; ++i) seen.insert(rng.bits(i));
  EXPECT_EQ(seen.size(), 600u);
  EXPECT_EQ(CounterRng({7, 8}).bits(5), CounterRng({7, 8}).bits(5));
}

TEST(CounterRng, MomentsOfUniformNormalAndBelow) {
  CounterRng rng({42, hash_name("moments")});
  double u = 0, n = 0, n2 = 0;
  int counts[5] = {};
  const int draws = 200000;
  for (int i = 0; i < draws; ++i) {
    double x = rng.uniform(i);
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    u += x;
    double z = rng.normal(i);
    n += z;
    n2 += z * z;
    ++counts[rng.below(i, 5)];
  }
  EXPECT_NEAR(u / draws, 0.5, 0.004);
  EXPECT_NEAR(n / draws, 0.0, 0.012);
  EXPECT_NEAR(n2 / draws, 1.0, 0.02);
  for (int c : counts) EXPECT_NEAR(c / double(draws), 0.2, 0.006);
}

}  // namespace
}  // namespace muoncore
