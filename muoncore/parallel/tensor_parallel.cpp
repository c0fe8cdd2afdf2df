#include "muoncore/parallel/tensor_parallel.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <numeric>

#include "muoncore/core/check.h"

namespace muoncore::parallel {
namespace {

constexpr TpMode kModes[] = {TpMode::kBlockwise, TpMode::kDuplicated, TpMode::kDistributed,
                             TpMode::kLayerSharded};

// The dimension of the stored tensor that holds the rows of the matrices; columns are all others.
int rows_dim(const ParamSpec& spec) {
  return spec.flatten ? 0 : static_cast<int>(spec.shape.size()) - 2;
}

int64_t group_rows(const ParamSpec& spec) {
  return std::accumulate(spec.blocks.rows.begin(), spec.blocks.rows.end(), int64_t{0});
}

bool cuts_fused_rows(const ParamSpec& spec) {
  return spec.partition_dim == rows_dim(spec) && !spec.blocks.rows.empty();
}

// True where every rank takes its share of each block instead of whole groups.
bool cuts_blocks(const ParamSpec& spec, int64_t tp) {
  if (!cuts_fused_rows(spec)) return false;
  const int64_t sum = group_rows(spec), rows = spec.shape[static_cast<size_t>(spec.partition_dim)];
  check(sum > 0 && rows % sum == 0, "{}: {} rows are not a multiple of the blocks [{}]", spec.name,
        rows, fmt::join(spec.blocks.rows, ", "));
  const int64_t groups = rows / sum;
  if (groups % tp == 0) return false;
  check(
      groups == 1 && !spec.blocks.per_group,
      "{}: its {} groups of blocks [{}] cannot be shared out over {} tensor-parallel ranks, which "
      "must divide the number of groups",
      spec.name, groups, fmt::join(spec.blocks.rows, ", "), tp);
  for (int64_t block : spec.blocks.rows)
    check(block % tp == 0,
          "{}: a block of {} rows cannot be shared out over {} tensor-parallel ranks", spec.name,
          block, tp);
  return true;
}

void check_cut(const ParamSpec& spec, int64_t tp) {
  check(tp >= 1, "{}: {} tensor-parallel ranks", spec.name, tp);
  if (spec.partition_dim == -1) return;
  const int dims = static_cast<int>(spec.shape.size());
  check(dims >= 2 && spec.partition_dim >= 0 && spec.partition_dim < (spec.flatten ? 2 : dims),
        "{}: partition_dim {} of shape [{}]: allowed are -1 (not cut) and 0 to {}", spec.name,
        spec.partition_dim, fmt::join(spec.shape, ", "), spec.flatten ? 1 : dims - 1);
  const int64_t size = spec.shape[static_cast<size_t>(spec.partition_dim)];
  check(size % tp == 0,
        "{}: dimension {} of shape [{}] cannot be cut over {} ranks, which must "
        "divide it",
        spec.name, spec.partition_dim, fmt::join(spec.shape, ", "), tp);
}

void check_shape(const at::Tensor& x, const std::vector<int64_t>& shape, const ParamSpec& spec) {
  check(x.sizes() == at::IntArrayRef(shape), "{}: a tensor of shape [{}] where [{}] is expected",
        spec.name, fmt::join(x.sizes().vec(), ", "), fmt::join(shape, ", "));
}

}  // namespace

TpMode parse_tp_mode(std::string_view text) {
  for (TpMode mode : kModes)
    if (text == to_string(mode)) return mode;
  fail("tp_mode '{}' is not one of blockwise, duplicated, distributed, layer_sharded", text);
}

const char* to_string(TpMode mode) {
  switch (mode) {
    case TpMode::kBlockwise:
      return "blockwise";
    case TpMode::kDuplicated:
      return "duplicated";
    case TpMode::kDistributed:
      return "distributed";
    case TpMode::kLayerSharded:
      return "layer_sharded";
  }
  return "?";
}

Cut cut_of(const ParamSpec& spec) {
  check_cut(spec, 1);
  if (spec.partition_dim == -1) return Cut::kWhole;
  const int from_rows = spec.partition_dim - rows_dim(spec);
  if (from_rows < 0) return Cut::kWhole;
  if (from_rows > 0) return Cut::kCols;
  return spec.blocks.per_group ? Cut::kWhole : Cut::kRows;
}

std::vector<int64_t> shard_shape(const ParamSpec& logical, int64_t tp) {
  check_cut(logical, tp);
  cuts_blocks(logical, tp);
  std::vector<int64_t> shape = logical.shape;
  if (logical.partition_dim >= 0) shape[static_cast<size_t>(logical.partition_dim)] /= tp;
  return shape;
}

ParamSpec shard_spec(const ParamSpec& logical, int64_t tp) {
  check_cut(logical, tp);
  ParamSpec spec = logical;
  if (cuts_blocks(logical, tp))
    for (int64_t& block : spec.blocks.rows) block /= tp;
  return spec;
}

at::Tensor shard_of(const at::Tensor& whole, const ParamSpec& logical, int64_t tp, int64_t rank) {
  check_shape(whole, logical.shape, logical);
  const std::vector<int64_t> shape = shard_shape(logical, tp);
  const int64_t dim = logical.partition_dim;
  if (dim < 0) return whole.clone(at::MemoryFormat::Contiguous);
  if (!cuts_blocks(logical, tp)) {
    const int64_t size = shape[static_cast<size_t>(dim)];
    return whole.narrow(dim, rank * size, size).clone(at::MemoryFormat::Contiguous);
  }
  std::vector<at::Tensor> pieces;
  int64_t start = 0;
  for (int64_t block : logical.blocks.rows) {
    pieces.push_back(whole.narrow(dim, start + rank * (block / tp), block / tp));
    start += block;
  }
  return at::cat(pieces, dim);
}

at::Tensor unshard(const std::vector<at::Tensor>& shards, const ParamSpec& logical) {
  const auto tp = static_cast<int64_t>(shards.size());
  const std::vector<int64_t> shape = shard_shape(logical, tp);
  for (const at::Tensor& shard : shards) check_shape(shard, shape, logical);
  const int64_t dim = logical.partition_dim;
  if (dim < 0) return shards[0].clone(at::MemoryFormat::Contiguous);
  if (!cuts_blocks(logical, tp)) return at::cat(shards, dim);
  std::vector<at::Tensor> pieces;
  int64_t start = 0;
  for (int64_t block : logical.blocks.rows) {
    for (const at::Tensor& shard : shards) pieces.push_back(shard.narrow(dim, start, block / tp));
    start += block / tp;
  }
  return at::cat(pieces, dim);
}

}  // namespace muoncore::parallel
