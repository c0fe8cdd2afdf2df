#include "muoncore/parallel/balanced_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/parallel/balanced_owners.h"

namespace muoncore::parallel {
namespace {

int64_t round_up(int64_t value) {
  return (value + kParamAlignment - 1) / kParamAlignment * kParamAlignment;
}

void check_inputs(const std::vector<LayoutParam>& params, const LayoutOptions& o) {
  check(o.dp >= 1, "a layout needs dp >= 1, not {}", o.dp);
  check(!o.bucket_size || *o.bucket_size >= 1, "bucket_size {} must be at least 1",
        o.bucket_size.value_or(1));
  check(o.before.empty() || static_cast<int64_t>(o.before.size()) == o.dp,
        "a layout for dp {} was given the loads of {} ranks", o.dp, o.before.size());
  for (const LayoutParam& p : params) check(p.numel() > 0, "parameter {} is empty", p.name);
}

// Parameters of one buffer in backward order, bucket by bucket.
std::vector<std::vector<int64_t>> make_buckets(const std::vector<LayoutParam>& params,
                                               const LayoutOptions& options, bool whole) {
  std::vector<std::vector<int64_t>> buckets;
  int64_t numel = 0;
  bool open = false;
  for (int64_t index = static_cast<int64_t>(params.size()) - 1; index >= 0; --index) {
    const LayoutParam& param = params[index];
    if (param.whole != whole) continue;
    if (!open || param.shared_embedding) {
      buckets.emplace_back();
      numel = 0;
    }
    buckets.back().push_back(index);
    numel += param.numel();
    open = !param.shared_embedding && !(options.bucket_size && numel >= *options.bucket_size);
  }
  return buckets;
}

// Lays parameters one after another; the caller sets the shards.
class Writer {
 public:
  Writer(const std::vector<LayoutParam>& params, BufferLayout& layout)
      : params_(params), layout_(layout) {}

  void begin_bucket() { layout_.buckets.push_back({cursor_, cursor_, 0, {}}); }
  void put(int64_t index, int64_t owner) {
    const int64_t numel = params_[index].numel();
    layout_.placements.push_back({index, cursor_, cursor_ + numel, bucket_index(), owner});
    cursor_ = round_up(cursor_ + numel);
    layout_.buckets.back().end = cursor_;
    layout_.buckets.back().numel_unpadded += numel;
  }
  void cut_here() { layout_.buckets.back().shards.push_back(cursor_); }

 private:
  int64_t bucket_index() const { return static_cast<int64_t>(layout_.buckets.size()) - 1; }

  const std::vector<LayoutParam>& params_;
  BufferLayout& layout_;
  int64_t cursor_ = 0;
};

BufferLayout lay_whole(const std::vector<LayoutParam>& params, const LayoutOptions& options,
                       std::vector<OwnedLoad>& loads) {
  const auto buckets = make_buckets(params, options, true);
  std::vector<OwnedItem> items;
  for (size_t b = 0; b < buckets.size(); ++b)
    for (int64_t index : buckets[b]) {
      const LayoutParam& p = params[index];
      items.push_back({p.cost ? p.cost : ns_cost(p.shape), p.numel(), static_cast<int64_t>(b)});
    }
  const std::vector<int64_t> owners = balance_owners(items, loads);
  for (size_t i = 0; i < items.size(); ++i) loads[owners[i]].numel += items[i].numel;

  BufferLayout layout;
  Writer writer(params, layout);
  size_t first = 0;
  for (const auto& bucket : buckets) {
    std::vector<std::vector<int64_t>> shares(options.dp);
    for (size_t i = 0; i < bucket.size(); ++i) shares[owners[first + i]].push_back(bucket[i]);
    first += bucket.size();
    writer.begin_bucket();
    writer.cut_here();
    for (int64_t rank = 0; rank < options.dp; ++rank) {
      for (int64_t index : shares[rank]) writer.put(index, rank);
      writer.cut_here();
    }
  }
  return layout;
}

// How many elements of `total` each rank should take so that all end up with the same number, or as
// near to it as taking none away allows.
std::vector<int64_t> level(const std::vector<OwnedLoad>& loads, int64_t total) {
  std::vector<int64_t> sorted;
  for (const OwnedLoad& load : loads) sorted.push_back(load.numel);
  std::sort(sorted.begin(), sorted.end());
  int64_t below = 0, height = 0;  // the k lowest ranks filled up to `height` take all of `total`
  for (size_t k = 1; k <= sorted.size(); ++k) {
    below += sorted[k - 1];
    height = (total + below) / static_cast<int64_t>(k);
    if (k == sorted.size() || height <= sorted[k]) break;
  }
  std::vector<int64_t> takes;
  for (const OwnedLoad& load : loads) takes.push_back(std::max<int64_t>(0, height - load.numel));
  return takes;
}

// Cuts a bucket in proportion to the ranks' weights, in units of kParamAlignment.
void cut(Bucket& bucket, const std::vector<int64_t>& weights) {
  const int64_t units = (bucket.end - bucket.start) / kParamAlignment;
  const int64_t sum = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  int64_t taken = 0;
  bucket.shards.push_back(bucket.start);
  for (int64_t weight : weights) {
    taken += weight;
    bucket.shards.push_back(bucket.start + units * taken / sum * kParamAlignment);
  }
}

BufferLayout lay_cut(const std::vector<LayoutParam>& params, const LayoutOptions& options,
                     std::vector<OwnedLoad> loads) {
  BufferLayout layout;
  Writer writer(params, layout);
  std::vector<bool> tied;
  for (const auto& bucket : make_buckets(params, options, false)) {
    writer.begin_bucket();
    for (int64_t index : bucket) writer.put(index, -1);
    tied.push_back(params[bucket[0]].shared_embedding);
  }
  // Stages own different things: what they share they cut alike.
  int64_t rest = layout.numel();
  for (size_t b = 0; b < tied.size(); ++b) {
    if (!tied[b]) continue;
    Bucket& bucket = layout.buckets[b];
    cut(bucket, std::vector<int64_t>(options.dp, 1));
    for (int64_t r = 0; r < options.dp; ++r)
      loads[r].numel += bucket.shards[r + 1] - bucket.shards[r];
    rest -= bucket.end - bucket.start;
  }
  // In units of kParamAlignment; a remainder of one unit per bucket and rank is left uneven.
  std::vector<int64_t> weights = level(loads, rest);
  for (int64_t& weight : weights) weight = (weight + kParamAlignment - 1) / kParamAlignment;
  for (size_t b = 0; b < tied.size(); ++b)
    if (!tied[b]) cut(layout.buckets[b], weights);
  return layout;
}

}  // namespace

ParamLayout balanced_layout(const std::vector<LayoutParam>& params, const LayoutOptions& options) {
  check_inputs(params, options);
  std::vector<OwnedLoad> loads = options.before;
  loads.resize(options.dp);
  BufferLayout whole = lay_whole(params, options, loads);
  BufferLayout cut = lay_cut(params, options, loads);
  return {std::move(whole), std::move(cut)};
}

}  // namespace muoncore::parallel
