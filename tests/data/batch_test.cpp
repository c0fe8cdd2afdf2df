#include "muoncore/data/batch.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "muoncore/core/check.h"

namespace muoncore::data {
namespace {

const std::vector<SftExample> kExamples = {
    {{5, 6, 7}, {0, 1, 1}}, {{8, 9}, {0, 1}}, {{1, 2, 3, 4}, {0, 0, 0, 1}}};

TEST(Collate, PadsOnTheRight) {
  Batch batch = collate(kExamples, 0);
  EXPECT_TRUE(at::equal(batch.ids,
                        at::tensor({5, 6, 7, 0, 8, 9, 0, 0, 1, 2, 3, 4}, at::kLong).view({3, 4})));
  EXPECT_TRUE(at::equal(
      batch.loss_mask,
      at::tensor({0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1}, at::kLong).view({3, 4}).to(at::kBool)));
  EXPECT_TRUE(at::equal(batch.lengths, at::tensor({3, 2, 4}, at::kLong)));
  EXPECT_EQ(batch.target_tokens, 4);
}

TEST(Collate, FaultyExamplesThrow) {
  EXPECT_THROW(collate({}, 0), Error);
  EXPECT_THROW(collate({{{}, {}}}, 0), Error);
  EXPECT_THROW(collate({{{1, 2}, {0}}}, 0), Error);
  EXPECT_THROW(collate({{{1, 2}, {1, 1}}}, 0), Error);
}

TEST(SplitMicroBatches, KeepsRowsAndCutsPadding) {
  Batch batch = collate(kExamples, 9);
  std::vector<Batch> parts = split_micro_batches(batch, 2);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].ids.sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_EQ(parts[1].ids.sizes(), (at::IntArrayRef{1, 4}));
  EXPECT_TRUE(at::equal(parts[0].ids, at::tensor({5, 6, 7, 8, 9, 9}, at::kLong).view({2, 3})));
  EXPECT_EQ(parts[0].target_tokens, 3);
  EXPECT_EQ(parts[1].target_tokens, 1);
  EXPECT_EQ(split_micro_batches(batch, 100).size(), 1u);
  EXPECT_EQ(split_micro_batches(batch, 1).size(), 3u);
  EXPECT_THROW(split_micro_batches(batch, 0), Error);
  parts[0].ids.fill_(0);  // a copy
  EXPECT_EQ(batch.ids[0][0].item<int64_t>(), 5);
}

}  // namespace
}  // namespace muoncore::data
