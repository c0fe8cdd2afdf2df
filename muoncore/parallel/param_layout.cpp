#include "muoncore/parallel/param_layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"
#include "muoncore/parallel/balanced_layout.h"

namespace muoncore::parallel {
namespace {

int64_t round_up(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor * divisor;
}

int64_t bucket_end_divisor(const LayoutOptions& options) {
  int64_t divisor = std::lcm(options.dp, int64_t{128});
  return options.pad_buckets_for_high_nccl_busbw ? std::lcm(divisor, int64_t{1} << 16) : divisor;
}

Bucket equal_shards(int64_t start, int64_t shard, int64_t dp, int64_t numel_unpadded) {
  Bucket bucket{start, start + shard * dp, numel_unpadded, {}};
  for (int64_t rank = 0; rank <= dp; ++rank) bucket.shards.push_back(start + rank * shard);
  return bucket;
}

// ZeRO-1: parameters one after another in backward order; equal shards cut wherever they fall.
class CutLayout {
 public:
  explicit CutLayout(const LayoutOptions& options) : options_(options) {}

  void add(int64_t index, const LayoutParam& param) {
    cursor_ =
        round_up(cursor_, kParamAlignment);  // Megatron aligns first and counts that gap as used
    if (param.shared_embedding) close();
    int64_t start = cursor_;
    cursor_ += param.numel();
    layout_.placements.push_back({index, start, cursor_, bucket()});
    open_ = true;
    bool full = options_.bucket_size && cursor_ - bucket_start_ >= *options_.bucket_size;
    if (full || param.shared_embedding) close();
  }

  BufferLayout finish() {
    close();
    return std::move(layout_);
  }

 private:
  int64_t bucket() const { return static_cast<int64_t>(layout_.buckets.size()); }

  void close() {
    if (!open_) return;
    int64_t end = round_up(cursor_, bucket_end_divisor(options_));
    // Megatron counts the gaps between parameters as used here: padding is only what follows the
    // last one.
    layout_.buckets.push_back(equal_shards(bucket_start_, (end - bucket_start_) / options_.dp,
                                           options_.dp, cursor_ - bucket_start_));
    bucket_start_ = cursor_ = end;
    open_ = false;
  }

  const LayoutOptions& options_;
  BufferLayout layout_;
  int64_t cursor_ = 0;
  int64_t bucket_start_ = 0;
  bool open_ = false;
};

// Layer-wise: each bucket's parameters packed whole into equal shards, largest first, each into the
// shard that is emptiest.
class WholeLayout {
 public:
  explicit WholeLayout(const LayoutOptions& options, const std::vector<LayoutParam>& params)
      : options_(options),
        params_(params),
        shard_divisor_(std::lcm(kParamAlignment, bucket_end_divisor(options) / options.dp)) {}

  void add(int64_t index) {
    const LayoutParam& param = params_[index];
    if (param.shared_embedding) {
      close();
      chunk_ = {index};
      close(param.numel());
      return;
    }
    chunk_.push_back(index);
    chunk_numel_ += param.numel();
    chunk_largest_ = std::max(chunk_largest_, param.numel());
    // One dominant parameter sets the size of every shard; waiting for nine tenths of what fits
    // bounds that padding.
    constexpr double kPaddingFloor = 0.9;
    if (options_.bucket_size &&
        chunk_numel_ >=
            std::max(*options_.bucket_size,
                     static_cast<int64_t>(options_.dp * chunk_largest_ * kPaddingFloor)))
      close();
  }

  BufferLayout finish() {
    close();
    return std::move(layout_);
  }

 private:
  void close(int64_t least_shard = 0) {
    if (chunk_.empty()) return;
    std::vector<std::vector<int64_t>> shards(options_.dp);
    std::vector<int64_t> used(options_.dp, 0);
    std::stable_sort(chunk_.begin(), chunk_.end(),
                     [&](int64_t a, int64_t b) { return params_[a].numel() > params_[b].numel(); });
    for (int64_t index : chunk_) {
      auto shard = std::min_element(used.begin(), used.end()) - used.begin();
      shards[shard].push_back(index);
      used[shard] = round_up(used[shard], kParamAlignment) + params_[index].numel();
    }
    int64_t size = round_up(std::max(least_shard, *std::max_element(used.begin(), used.end())),
                            shard_divisor_);
    place(shards, size);
    chunk_.clear();
    chunk_numel_ = chunk_largest_ = 0;
  }

  void place(const std::vector<std::vector<int64_t>>& shards, int64_t shard_size) {
    int64_t start = layout_.numel();
    int64_t bucket = static_cast<int64_t>(layout_.buckets.size());
    int64_t unpadded = 0;
    for (int64_t rank = 0; rank < options_.dp; ++rank) {
      int64_t cursor = start + rank * shard_size;
      for (int64_t index : shards[rank]) {
        cursor = round_up(cursor, kParamAlignment);
        int64_t numel = params_[index].numel();
        layout_.placements.push_back({index, cursor, cursor + numel, bucket, rank});
        cursor += numel;
        unpadded += numel;
      }
    }
    layout_.buckets.push_back(equal_shards(start, shard_size, options_.dp, unpadded));
  }

  const LayoutOptions& options_;
  const std::vector<LayoutParam>& params_;
  int64_t shard_divisor_;
  BufferLayout layout_;
  std::vector<int64_t> chunk_;
  int64_t chunk_numel_ = 0;
  int64_t chunk_largest_ = 0;
};

void check_buffer(const BufferLayout& layout, const std::vector<LayoutParam>& params, int64_t dp,
                  bool whole, std::vector<int>& seen) {
  int64_t at = 0;
  for (const Bucket& b : layout.buckets) {
    check(b.start == at && b.end >= b.start,
          "bucket [{}, {}) does not begin where the one before ends, {}", b.start, b.end, at);
    check(static_cast<int64_t>(b.shards.size()) == dp + 1 && b.shards.front() == b.start &&
              b.shards.back() == b.end && std::is_sorted(b.shards.begin(), b.shards.end()),
          "the shards of bucket [{}, {}) do not cover it", b.start, b.end);
    at = b.end;
  }
  std::vector<Placement> sorted = layout.placements;
  std::sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.start < b.start; });
  int64_t free_from = 0;
  for (const Placement& p : sorted) {
    const LayoutParam& param = params.at(p.param);
    check(param.whole == whole && ++seen.at(p.param) == 1, "{} stands in the wrong buffer or twice",
          param.name);
    check(
        p.end - p.start == param.numel() && p.start >= free_from && p.start % kParamAlignment == 0,
        "{} lies at [{}, {}): wrong size, overlapping or not aligned", param.name, p.start, p.end);
    free_from = p.end;
    const Bucket& b = layout.buckets.at(p.bucket);
    int64_t low = whole ? b.shards.at(p.owner) : b.start,
            high = whole ? b.shards.at(p.owner + 1) : b.end;
    check(p.start >= low && p.end <= high, "{} at [{}, {}) leaves [{}, {})", param.name, p.start,
          p.end, low, high);
  }
}

}  // namespace

int64_t LayoutParam::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

LayoutKind parse_layout_kind(std::string_view text) {
  if (text == "balanced") return LayoutKind::kBalanced;
  if (text == "megatron") return LayoutKind::kMegatron;
  std::string near = nearest_name(text, {"balanced", "megatron"});
  fail("layout '{}' is neither balanced nor megatron{}", text,
       near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

const char* to_string(LayoutKind kind) {
  return kind == LayoutKind::kBalanced ? "balanced" : "megatron";
}

int64_t ns_cost(const std::vector<int64_t>& shape) {
  if (shape.size() < 2) return 0;
  const int64_t n = std::min(shape.back(), shape[shape.size() - 2]),
                m = std::max(shape.back(), shape[shape.size() - 2]);
  const int64_t slices =
      std::accumulate(shape.begin(), shape.end() - 2, int64_t{1}, std::multiplies<>());
  return slices * (4 * n * n * m + 2 * n * n * n);
}

int64_t default_bucket_size(int64_t dp) { return std::max<int64_t>(40'000'000, 1'000'000 * dp); }

int64_t BufferLayout::numel_unpadded() const {
  int64_t sum = 0;
  for (const Bucket& bucket : buckets) sum += bucket.numel_unpadded;
  return sum;
}

ParamLayout megatron_layout(const std::vector<LayoutParam>& params, const LayoutOptions& options) {
  check(options.dp >= 1, "a layout needs dp >= 1, not {}", options.dp);
  check(!options.bucket_size || *options.bucket_size >= 1, "bucket_size {} must be at least 1",
        options.bucket_size.value_or(1));
  CutLayout cut(options);
  WholeLayout whole(options, params);
  for (int64_t index = static_cast<int64_t>(params.size()) - 1; index >= 0; --index) {
    check(params[index].numel() > 0, "parameter {} is empty", params[index].name);
    if (params[index].whole)
      whole.add(index);
    else
      cut.add(index, params[index]);
  }
  return {whole.finish(), cut.finish()};
}

ParamLayout compute_layout(LayoutKind kind, const std::vector<LayoutParam>& params,
                           const LayoutOptions& options) {
  return kind == LayoutKind::kBalanced ? balanced_layout(params, options)
                                       : megatron_layout(params, options);
}

std::vector<OwnedLoad> owned_loads(const ParamLayout& layout,
                                   const std::vector<LayoutParam>& params, int64_t dp) {
  std::vector<OwnedLoad> loads(dp);
  for (const Placement& p : layout.whole.placements) {
    const LayoutParam& param = params.at(p.param);
    OwnedLoad& load = loads.at(p.owner);
    load.cost += param.cost ? param.cost : ns_cost(param.shape);
    load.numel += param.numel();
  }
  for (const Bucket& bucket : layout.cut.buckets)
    for (int64_t rank = 0; rank < dp; ++rank)
      loads[rank].numel += bucket.shards.at(rank + 1) - bucket.shards[rank];
  return loads;
}

uint64_t hash_layout(const ParamLayout& layout, const std::vector<LayoutParam>& params) {
  std::string text;
  for (const LayoutParam& p : params)
    text +=
        fmt::format("{} {} {} {}\n", p.name, fmt::join(p.shape, ","), p.whole, p.shared_embedding);
  for (const BufferLayout* buffer : {&layout.whole, &layout.cut}) {
    for (const Placement& p : buffer->placements)
      text += fmt::format("{} {} {} {} {}\n", p.param, p.start, p.end, p.bucket, p.owner);
    for (const Bucket& b : buffer->buckets)
      text += fmt::format("{} {}\n", b.numel_unpadded, fmt::join(b.shards, ","));
    text += '|';
  }
  return hash_name(text);
}

std::vector<std::vector<int64_t>> ping_pong_owners(const std::vector<LayoutParam>& params,
                                                   const std::vector<int64_t>& order, int64_t dp) {
  check(dp >= 1, "ping-pong needs dp >= 1, not {}", dp);
  std::vector<int64_t> sorted = order;
  std::stable_sort(sorted.begin(), sorted.end(), [&](int64_t a, int64_t b) {
    return params.at(a).numel() < params.at(b).numel();
  });
  std::vector<std::vector<int64_t>> owned(dp);
  for (size_t i = 0; i < sorted.size(); ++i) {
    int64_t turn = static_cast<int64_t>(i) % (2 * dp);
    owned[turn < dp ? turn : 2 * dp - 1 - turn].push_back(sorted[i]);
  }
  return owned;
}

void check_layout(const ParamLayout& layout, const std::vector<LayoutParam>& params, int64_t dp) {
  std::vector<int> seen(params.size(), 0);
  check_buffer(layout.whole, params, dp, true, seen);
  check_buffer(layout.cut, params, dp, false, seen);
  for (size_t i = 0; i < params.size(); ++i)
    check(seen[i] == 1, "{} is in no buffer", params[i].name);
}

}  // namespace muoncore::parallel
