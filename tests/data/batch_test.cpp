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

}  // namespace
}  // namespace muoncore::data
