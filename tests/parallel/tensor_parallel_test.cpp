// How matrices are cut, and what cannot be cut.
#include "muoncore/parallel/tensor_parallel.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <gmock/gmock.h>

#include "tests/support/error_of.h"

namespace muoncore::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ParamSpec spec_of(std::vector<int64_t> shape, int partition_dim, std::vector<int64_t> blocks = {},
                  bool per_group = false) {
  ParamSpec spec;
  spec.name = "layer.weight";
  spec.shape = std::move(shape);
  spec.partition_dim = partition_dim;
  spec.blocks = {std::move(blocks), per_group};
  return spec;
}

at::Tensor counted(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return at::arange(count, at::kFloat).view(shape);
}

// The first element of every row.
std::vector<float> first_column(const at::Tensor& x) {
  at::Tensor column = x.select(-1, 0).reshape({-1}).contiguous();
  return {column.data_ptr<float>(), column.data_ptr<float>() + column.numel()};
}

TEST(TensorParallelCut, WordsOfTheModes) {
  for (const char* word : {"blockwise", "duplicated", "distributed", "layer_sharded"})
    EXPECT_STREQ(to_string(parse_tp_mode(word)), word);
  EXPECT_THAT(error_of([] { parse_tp_mode("block"); }),
              HasSubstr("blockwise, duplicated, distributed, layer_sharded"));
}

TEST(TensorParallelCut, SidesOfTheLogicalMatrices) {
  EXPECT_EQ(cut_of(spec_of({4, 6}, -1)), Cut::kWhole);
  EXPECT_EQ(cut_of(spec_of({4, 6}, 0)), Cut::kRows);
  EXPECT_EQ(cut_of(spec_of({4, 6}, 1)), Cut::kCols);
  EXPECT_EQ(cut_of(spec_of({8, 4, 6}, 0)), Cut::kWhole);  // experts
  EXPECT_EQ(cut_of(spec_of({8, 4, 6}, 1)), Cut::kRows);
  EXPECT_EQ(cut_of(spec_of({8, 4, 6}, 2)), Cut::kCols);
  EXPECT_EQ(cut_of(spec_of({4, 6}, 0, {2}, true)), Cut::kWhole);  // heads
  EXPECT_EQ(cut_of(spec_of({4, 6}, 1, {2}, true)), Cut::kCols);
  ParamSpec kernel = spec_of({8, 4, 3, 3}, 1);
  kernel.flatten = true;
  EXPECT_EQ(cut_of(kernel), Cut::kCols);
  EXPECT_EQ(cut_of(ParamSpec{}), Cut::kWhole);  // never declared
}

TEST(TensorParallelCut, ShardsAreEqualChunks) {
  const ParamSpec rows = spec_of({4, 2}, 0), cols = spec_of({2, 4}, 1);
  EXPECT_THAT(first_column(shard_of(counted({4, 2}), rows, 2, 1)), ElementsAre(4, 6));
  EXPECT_THAT(first_column(shard_of(counted({2, 4}), cols, 2, 1)), ElementsAre(2, 6));
  EXPECT_THAT(shard_shape(cols, 4), ElementsAre(2, 1));
}

// Two query groups of two query rows, one key row and one value row each: a rank holds a group.
TEST(TensorParallelCut, AttentionShardsHoldWholeGroups) {
  const ParamSpec qkv = spec_of({8, 1}, 0, {2, 1, 1});
  EXPECT_THAT(first_column(shard_of(counted({8, 1}), qkv, 2, 1)), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(shard_spec(qkv, 2), qkv);
}

// [gate; up]: a rank holds its half of the gate's rows, then its half of the up rows.
TEST(TensorParallelCut, OneGroupIsCutBlockByBlock) {
  const ParamSpec gate_up = spec_of({8, 1}, 0, {4, 4});
  EXPECT_THAT(first_column(shard_of(counted({8, 1}), gate_up, 2, 0)), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(first_column(shard_of(counted({8, 1}), gate_up, 2, 1)), ElementsAre(2, 3, 6, 7));
  EXPECT_THAT(shard_spec(gate_up, 2).blocks.rows, ElementsAre(2, 2));
  EXPECT_THAT(shard_spec(gate_up, 2).shape, ElementsAre(8, 1));
}

TEST(TensorParallelCut, EverythingComesBack) {
  const std::vector<ParamSpec> specs = {
      spec_of({12, 5}, -1),
      spec_of({12, 5}, 0),
      spec_of({5, 12}, 1),
      spec_of({24, 5}, 0, {3, 2, 1}),
      spec_of({24, 5}, 0, {16, 8}),
      spec_of({3, 24, 5}, 1, {12, 12}),
      spec_of({4, 3, 8}, 0),
      spec_of({3, 6, 8}, 2, {2, 1}),
      spec_of({24, 5}, 0, {4, 2}, true),
      spec_of({0, 4, 4}, 1),
  };
  for (const ParamSpec& spec : specs)
    for (int64_t tp : {1, 2, 4}) {
      const at::Tensor whole = counted(spec.shape);
      std::vector<at::Tensor> shards;
      for (int64_t rank = 0; rank < tp; ++rank) {
        shards.push_back(shard_of(whole, spec, tp, rank));
        EXPECT_EQ(shards.back().sizes(), at::IntArrayRef(shard_shape(spec, tp)));
      }
      EXPECT_TRUE(unshard(shards, spec).equal(whole)) << tp;
    }
}

TEST(TensorParallelCut, ImpossibleCutsNameTheParameter) {
  auto refusal = [](const ParamSpec& spec, int64_t tp) {
    return error_of([&] { shard_spec(spec, tp); });
  };
  EXPECT_THAT(refusal(spec_of({6, 4}, 0), 4),
              HasSubstr("layer.weight: dimension 0 of shape [6, 4] cannot be cut over 4 ranks"));
  // More ranks than query groups: Megatron orthogonalizes the fused matrix and says nothing.
  EXPECT_THAT(
      refusal(spec_of({16, 4}, 0, {4, 2, 2}), 4),
      HasSubstr("layer.weight: its 2 groups of blocks [4, 2, 2] cannot be shared out over 4"));
  EXPECT_THAT(refusal(spec_of({8, 4}, 0, {4, 2, 2}, true), 2), HasSubstr("its 1 groups"));
  EXPECT_THAT(refusal(spec_of({8, 4}, 0, {5, 3}), 2), HasSubstr("layer.weight: a block of 5 rows"));
  EXPECT_THAT(refusal(spec_of({8, 4}, 0, {5, 2}), 2),
              HasSubstr("8 rows are not a multiple of the blocks [5, 2]"));
  EXPECT_THAT(refusal(spec_of({8, 4}, 2), 2), HasSubstr("layer.weight: partition_dim 2"));
  EXPECT_THAT(refusal(spec_of({8, 4}, -2), 2), HasSubstr("layer.weight: partition_dim -2"));
  EXPECT_THAT(refusal(spec_of({8}, 0), 2), HasSubstr("layer.weight: partition_dim 0"));
  EXPECT_THAT(refusal(spec_of({8, 4}, 0), 0), HasSubstr("layer.weight: 0 tensor-parallel ranks"));
  ParamSpec kernel = spec_of({8, 4, 3, 3}, 2);
  kernel.flatten = true;
  EXPECT_THAT(refusal(kernel, 3), HasSubstr("partition_dim 2"));
  EXPECT_THAT(error_of([] {
                shard_of(counted({3, 4}), spec_of({4, 4}, 0), 2, 0);
              }),
              HasSubstr("layer.weight: a tensor of shape [3, 4] where [4, 4] is expected"));
}

}  // namespace
}  // namespace muoncore::parallel
