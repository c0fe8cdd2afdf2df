// How tensor parallelism cuts the matrices that Muon updates, as plain data: which dimension, what
// each rank's shard looks like, and how it is put together again.
//
// A parameter is cut into equal contiguous shards along ParamSpec::partition_dim. Where its rows
// fuse several logical matrices (ParamSpec::blocks), the cut never mixes them: a rank holds whole
// groups (attention: the query, key and value rows of its query groups), or, where there is one
// group only ([gate; up]), its share of every block, block after block. Megatron-Core stores its
// shards in the same way.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "muoncore/core/param_spec.h"

namespace muoncore::parallel {

// What is orthogonalized, and by whom; formulas in tensor_parallel_muon.h.
enum class TpMode {
  kBlockwise,     // each rank's shard as a matrix of its own: the result depends on the ranks
  kDuplicated,    // the whole matrix, on every rank
  kDistributed,   // the whole matrix, its products shared out over the ranks
  kLayerSharded,  // whole matrices, each on one rank
};
// blockwise, duplicated, distributed, layer_sharded; throws, naming the words.
TpMode parse_tp_mode(std::string_view text);
const char* to_string(TpMode mode);

// Which side of its logical matrices a shard cuts. Experts cut along the batch and heads
// (blocks.per_group) cut along the rows are whole matrices on their rank.
enum class Cut { kWhole, kRows, kCols };
Cut cut_of(const ParamSpec& spec);

// The spec of one rank's shard: the same but for blocks that are themselves cut. `shape` stays the
// logical one. Throws, naming the parameter, where the cut is impossible: a partition_dim that the
// matrix does not have, a dimension or a block that `tp` does not divide, groups that it does not
// divide (more ranks than query groups).
ParamSpec shard_spec(const ParamSpec& logical, int64_t tp);

// The shape of one rank's shard. Throws as shard_spec.
std::vector<int64_t> shard_shape(const ParamSpec& logical, int64_t tp);

// The shard of one rank, a new tensor; and back, from the shards of all ranks in order. Throw as
// shard_spec, and where a tensor has another shape than the spec says. Local.
at::Tensor shard_of(const at::Tensor& whole, const ParamSpec& logical, int64_t tp, int64_t rank);
at::Tensor unshard(const std::vector<at::Tensor>& shards, const ParamSpec& logical);

}  // namespace muoncore::parallel
