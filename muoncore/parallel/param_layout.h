// Where every parameter lies in the flat buffers of data parallelism, as frozen data: a layout can
// be printed, hashed and tested with no process group, and every rank computes the same one.
//
// `megatron` layouts are those of Megatron-Core 0.19.2, offset for offset: the ZeRO-1 distributed
// optimizer slices a bucket into equal shards wherever the cuts fall; the layer-wise optimizer
// packs whole parameters into equal shards. Source: megatron/core/optimizer/param_layout.py,
// layer_wise_optimizer.py and distrib_optimizer.py of 0.19.2 (read, described in our words); judged
// by the recorded layouts of tests/data/golden/layouts.json. `balanced` layouts (the default) are
// in balanced_layout.h.
//
// A layout is that of one model chunk and one kind of parameter: dense ones over the data-parallel
// ranks, expert ones over the expert data-parallel ranks. A chunk with experts has two.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muoncore::parallel {

// What a layout needs to know of a parameter. Parameters are given in forward order.
struct LayoutParam {
  std::string name;
  std::vector<int64_t> shape;     // as it lies in the buffer: this rank's tensor-parallel share
  bool whole = false;             // must not be cut: updated by Muon on its owner (layer-wise)
  bool shared_embedding = false;  // tied across pipeline stages: gets a bucket of its own
  int64_t cost = 0;               // what its owner spends on it; 0: ns_cost(shape)
  int64_t numel() const;
  bool operator==(const LayoutParam&) const = default;
};

// Elements [start, end) of the buffer, inside bucket `bucket`. `owner` is the data-parallel rank
// whose shard holds the whole parameter, or -1 in a buffer whose shards cut parameters.
struct Placement {
  int64_t param;  // index into the parameters that the layout was computed from
  int64_t start, end;
  int64_t bucket;
  int64_t owner = -1;
  bool operator==(const Placement&) const = default;
};

// Elements [start, end) of the buffer; rank r's shard is [shards[r], shards[r + 1]), shards[0] ==
// start, shards[dp] == end.
struct Bucket {
  int64_t start, end;
  int64_t numel_unpadded;
  std::vector<int64_t> shards;
  bool operator==(const Bucket&) const = default;
};

// One buffer. Buckets follow each other from 0 without holes; placements are in the order in which
// they were laid.
struct BufferLayout {
  std::vector<Placement> placements;
  std::vector<Bucket> buckets;
  int64_t numel() const { return buckets.empty() ? 0 : buckets.back().end; }
  int64_t numel_unpadded() const;
  bool operator==(const BufferLayout&) const = default;
};

// Parameters that stay whole and those that may be cut never share a buffer.
struct ParamLayout {
  BufferLayout whole;  // layer-wise (Muon)
  BufferLayout cut;    // ZeRO-1 (AdamW)
  bool operator==(const ParamLayout&) const = default;
};

// What a rank owns.
struct OwnedLoad {
  int64_t cost = 0;   // Newton-Schulz, of its whole parameters
  int64_t numel = 0;  // elements, of both buffers
  bool operator==(const OwnedLoad&) const = default;
};

struct LayoutOptions {
  int64_t dp = 1;  // data-parallel ranks, >= 1
  // elements; a bucket closes once it has this many; none: one bucket
  std::optional<int64_t> bucket_size = std::nullopt;
  bool pad_buckets_for_high_nccl_busbw = false;  // ends of buckets at multiples of 2^16 elements
  // balanced only: what each rank owns in earlier chunks of the same model; empty or dp long
  std::vector<OwnedLoad> before = {};
};

enum class LayoutKind { kBalanced, kMegatron };
LayoutKind parse_layout_kind(std::string_view text);  // "balanced" or "megatron"; throws
const char* to_string(LayoutKind kind);

// 4 n^2 m + 2 n^3 with n <= m: the floating-point operations of one Newton-Schulz step on one
// matrix as stored, in its wide orientation (A = X X^T and B X: 2 n^2 m each; A A: 2 n^3). [batch,
// rows, cols] counts every slice; fewer than two dimensions cost nothing.
int64_t ns_cost(const std::vector<int64_t>& shape);

// Megatron's rule where communication overlaps: max(40e6, 1e6 * dp) elements.
int64_t default_bucket_size(int64_t dp);

// The layout of that kind; errors as megatron_layout and balanced_layout.
ParamLayout compute_layout(LayoutKind kind, const std::vector<LayoutParam>& params,
                           const LayoutOptions& options);

// Per rank: the costs and sizes of its whole parameters, and the lengths of its shards of `cut`.
std::vector<OwnedLoad> owned_loads(const ParamLayout& layout,
                                   const std::vector<LayoutParam>& params, int64_t dp);

// Of everything in the layout and of the parameters' names and shapes: ranks compare it at start.
uint64_t hash_layout(const ParamLayout& layout, const std::vector<LayoutParam>& params);

// Parameters start at multiples of this many elements, so that no two ranks' vectors share a cache
// line.
constexpr int64_t kParamAlignment = 64;

// Megatron's layouts. With no parameter `whole`, the cut buffer is that of the plain distributed
// optimizer. Throws Error on dp < 1, bucket_size < 1 or an empty shape.
ParamLayout megatron_layout(const std::vector<LayoutParam>& params, const LayoutOptions& options);

// Megatron's owners without a layout ("ping-pong"): parameters in ascending size, dealt to ranks
// 0..dp-1, dp-1..0, and so on. `order` lists parameter indices as Megatron's groups do. Returns the
// indices each rank owns.
std::vector<std::vector<int64_t>> ping_pong_owners(const std::vector<LayoutParam>& params,
                                                   const std::vector<int64_t>& order, int64_t dp);

// Throws Error unless: every parameter stands exactly once, in the right buffer and without
// overlap; starts are aligned; buckets are contiguous; shards cover their bucket; a whole parameter
// lies inside its owner's shard.
void check_layout(const ParamLayout& layout, const std::vector<LayoutParam>& params, int64_t dp);

}  // namespace muoncore::parallel
