// Collectives between threads: values, dtypes, odd shapes, order of works, failures.
#include "muoncore/comm/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>

#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

using ::testing::HasSubstr;

TEST(Threads, AllReduceOfEachRanksNumber) {
  for (int64_t n : {1, 2, 3, 4}) {
    run_ranks(n, [n](Group& world) {
      for (int64_t count : {0, 1, 5, 4096, 100003}) {
        torch::Tensor t = torch::full({count}, static_cast<double>(world.rank() + 1));
        world.all_reduce(t, ReduceOp::kSum, "numbers")->wait();
        EXPECT_TRUE(t.eq(static_cast<double>(n * (n + 1) / 2)).all().item<bool>());
      }
    });
  }
}

TEST(Threads, AFailingRankEndsTheOthers) {
  std::atomic<int> ended{0};
  try {
    run_ranks(3, [&](Group& world) {
      if (world.rank() == 1) fail("no such file");
      torch::Tensor t = torch::ones({10});
      EXPECT_THROW(world.all_reduce(t, ReduceOp::kSum, "norm")->wait(), LostPeer);
      ++ended;
    });
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "no such file");
  }
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace muoncore::comm
