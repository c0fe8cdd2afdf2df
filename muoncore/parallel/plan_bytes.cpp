#include "muoncore/parallel/plan_bytes.h"

#include <algorithm>

namespace muoncore::parallel {
namespace {

constexpr int64_t kFp32 = 4;

int64_t shard_numel(const Bucket& bucket, int64_t rank) {
  return bucket.shards.at(rank + 1) - bucket.shards.at(rank);
}

// Elements of parameters, not of padding, in the rank's shards.
int64_t owned_numel(const BufferLayout& buffer, int64_t rank) {
  int64_t sum = 0;
  for (const Placement& p : buffer.placements) {
    const std::vector<int64_t>& shards = buffer.buckets[p.bucket].shards;
    sum += std::max<int64_t>(
        0, std::min(p.end, shards.at(rank + 1)) - std::max(p.start, shards.at(rank)));
  }
  return sum;
}

}  // namespace

RankBytes& RankBytes::operator+=(const RankBytes& other) {
  parameters += other.parameters;
  gradients += other.gradients;
  masters += other.masters;
  momentum += other.momentum;
  exp_avg += other.exp_avg;
  exp_avg_sq += other.exp_avg_sq;
  return *this;
}

RankBytes rank_bytes(const ParamLayout& layout, int64_t rank, const ElementSizes& sizes) {
  const int64_t stored = layout.whole.numel() + layout.cut.numel();
  const int64_t muon = owned_numel(layout.whole, rank), adamw = owned_numel(layout.cut, rank);
  RankBytes bytes;
  bytes.parameters = stored * sizes.param;
  bytes.gradients = stored * sizes.grad;
  bytes.masters = sizes.param < kFp32 ? (muon + adamw) * kFp32 : 0;
  bytes.momentum = muon * kFp32;
  bytes.exp_avg = bytes.exp_avg_sq = adamw * kFp32;
  return bytes;
}

int64_t bytes_sent(const ParamLayout& layout, int64_t rank, const ElementSizes& sizes) {
  int64_t sent = 0;
  for (const BufferLayout* buffer : {&layout.whole, &layout.cut})
    for (const Bucket& bucket : buffer->buckets) {
      const int64_t own = shard_numel(bucket, rank);
      const int64_t others = static_cast<int64_t>(bucket.shards.size()) - 2;
      sent += (bucket.end - bucket.start - own) * sizes.grad + own * others * sizes.param;
    }
  return sent;
}

}  // namespace muoncore::parallel
