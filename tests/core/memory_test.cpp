#include "muoncore/core/memory.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "muoncore/core/counting_allocator.h"

namespace muoncore {
namespace {

const c10::Device kCpu(c10::DeviceType::CPU);

class CountingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    early_ = torch::ones({1000});  // perhaps made before the allocator was installed
    install_counting_allocator();
  }
  torch::Tensor early_;
};

TEST_F(CountingTest, CountsTensorBytesExactly) {
  ASSERT_TRUE(counting_allocator_installed());
  const int64_t before = live_tensor_bytes();
  {
    const auto a = torch::empty({1000});
    EXPECT_EQ(live_tensor_bytes() - before, 4000);
    const auto view = a.slice(0, 10, 20);
    const auto b = torch::empty({3, 5}, torch::kFloat64);
    EXPECT_EQ(live_tensor_bytes() - before, 4000 + 120);
  }
  EXPECT_EQ(live_tensor_bytes(), before);
}

TEST_F(CountingTest, ATensorFromBeforeIsFreedWithoutBeingCounted) {
  const int64_t before = live_tensor_bytes();
  const bool counted = before >= 4000;
  early_ = torch::Tensor();
  if (!counted) {
    EXPECT_EQ(live_tensor_bytes(), before);
  }
  EXPECT_GE(live_tensor_bytes(), 0);
}

TEST_F(CountingTest, EmptyTensorsAndResizes) {
  const int64_t before = live_tensor_bytes();
  {
    auto none = torch::empty({0});
    EXPECT_EQ(live_tensor_bytes(), before);
    none.resize_({100});
    EXPECT_EQ(live_tensor_bytes() - before, 400);
    none.resize_({300});
    EXPECT_EQ(live_tensor_bytes() - before, 1200);
  }
  EXPECT_EQ(live_tensor_bytes(), before);
}

TEST_F(CountingTest, DataStaysAligned) {
  for (const int64_t n : {1, 7, 63, 4097}) {
    const auto t = torch::empty({n}, torch::kUInt8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data_ptr()) % 64, 0u);
  }
}

TEST_F(CountingTest, PeakSeesTheTemporaryAndIsReset) {
  const int64_t before = live_tensor_bytes();
  reset_peak_tensor_bytes();
  { const auto t = torch::empty({1 << 16}); }
  EXPECT_EQ(peak_tensor_bytes() - before, 4 << 16);
  reset_peak_tensor_bytes();
  EXPECT_EQ(peak_tensor_bytes(), live_tensor_bytes());
}

TEST_F(CountingTest, ManyThreadsLoseNoByte) {
  const int64_t before = live_tensor_bytes();
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([] {
      std::vector<torch::Tensor> kept;
      for (int i = 1; i < 2000; ++i) {
        kept.push_back(torch::empty({i % 17 + 1}));
        if (i % 3 == 0) kept.erase(kept.begin());
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(live_tensor_bytes(), before);
}

TEST_F(CountingTest, PhasesNest) {
  PhaseMemory memory(kCpu);
  const int64_t before = live_bytes(kCpu);
  torch::Tensor kept;
  memory.enter("update");
  { const auto t = torch::empty({5000}); }
  memory.enter("step");
  { const auto t = torch::empty({1000}); }
  memory.leave();
  EXPECT_EQ(memory.lives().at("step"), before);
  kept = torch::empty({100});
  memory.leave();
  EXPECT_EQ(memory.lives().at("update") - before, 400);
  kept.reset();
  memory.enter("gen");
  memory.leave();
  memory.enter("gen");  // the larger of the two counts
  { const auto t = torch::empty({10}); }
  memory.leave();
  EXPECT_EQ(memory.peaks().at("step") - before, 4000);
  EXPECT_EQ(memory.peaks().at("update") - before, 20000);
  EXPECT_EQ(memory.peaks().at("gen") - before, 40);
  EXPECT_THROW(memory.leave(), std::logic_error);
}

TEST_F(CountingTest, AnInnerPeakCountsForTheOuterPhase) {
  PhaseMemory memory(kCpu);
  const int64_t before = live_bytes(kCpu);
  memory.enter("outer");
  memory.enter("inner");
  { const auto t = torch::empty({5000}); }
  memory.leave();
  memory.leave();
  EXPECT_EQ(memory.peaks().at("outer") - before, 20000);
}

TEST(ProcessMemoryTest, TheProcessHasAPeak) { EXPECT_GT(process_peak_bytes(), 10 << 20); }

}  // namespace
}  // namespace muoncore
