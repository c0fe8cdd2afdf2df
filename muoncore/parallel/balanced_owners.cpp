#include "muoncore/parallel/balanced_owners.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace muoncore::parallel {
namespace {

using Measure = int64_t OwnedLoad::*;

// Ranks hold counts of kinds, not items: a model has thousands of matrices but few shapes.
class Dealer {
 public:
  Dealer(std::vector<OwnedLoad> kinds, std::vector<OwnedLoad> before)
      : kinds_(std::move(kinds)), loads_(std::move(before)), held_(loads_.size()) {}

  // Each in turn to the rank with the least cost, then the fewest elements.
  void deal(const std::vector<int64_t>& kinds) {
    std::set<std::tuple<int64_t, int64_t, int64_t>> ranks;  // cost, elements, rank
    for (size_t r = 0; r < loads_.size(); ++r) ranks.insert({loads_[r].cost, loads_[r].numel, r});
    for (int64_t kind : kinds) {
      const int64_t rank = std::get<2>(*ranks.begin());
      ranks.erase(ranks.begin());
      give(rank, kind, 1);
      ranks.insert({loads_[rank].cost, loads_[rank].numel, rank});
    }
  }

  // Moves and swaps while they lower the largest `measure` and leave the largest `fixed` as it is.
  void lower_largest(Measure measure, std::optional<Measure> fixed) {
    const int64_t cap = fixed ? largest(*fixed) : 0;
    while (auto swap = best_swap(measure, fixed, cap)) {
      exchange(swap->from, swap->to, swap->give);
      if (swap->take != kNothing) exchange(swap->to, swap->from, swap->take);
    }
  }

  // held[rank][kind]: how many of it the rank owns.
  const std::vector<std::map<int64_t, int64_t>>& held() const { return held_; }

 private:
  static constexpr int64_t kNothing = -1;
  struct Swap {
    int64_t from, to, give, take;
  };

  int64_t largest(Measure measure) const {
    int64_t most = 0;
    for (const OwnedLoad& load : loads_) most = std::max(most, load.*measure);
    return most;
  }

  void give(int64_t rank, int64_t kind, int64_t count) {
    loads_[rank].cost += count * kinds_[kind].cost;
    loads_[rank].numel += count * kinds_[kind].numel;
    if ((held_[rank][kind] += count) == 0) held_[rank].erase(kind);
  }

  void exchange(int64_t from, int64_t to, int64_t kind) {
    give(from, kind, -1);
    give(to, kind, 1);
  }

  OwnedLoad difference(int64_t give, int64_t take) const {
    OwnedLoad d = kinds_[give];
    if (take == kNothing) return d;
    return {d.cost - kinds_[take].cost, d.numel - kinds_[take].numel};
  }

  // Of the rank with the largest measure, the exchange with another rank after which the larger of
  // the two is smallest; none when that is no gain.
  std::optional<Swap> best_swap(Measure measure, std::optional<Measure> fixed, int64_t cap) const {
    int64_t from = 0, ranks = static_cast<int64_t>(loads_.size());
    for (int64_t r = 1; r < ranks; ++r)
      if (loads_[r].*measure > loads_[from].*measure) from = r;
    int64_t best = loads_[from].*measure;
    std::optional<Swap> found;
    auto consider = [&](int64_t to, int64_t give, int64_t take) {
      const OwnedLoad d = difference(give, take);
      const int64_t larger =
          std::max(loads_[from].*measure - d.*measure, loads_[to].*measure + d.*measure);
      if (larger >= best) return;
      if (fixed && std::max(loads_[from].**fixed - d.**fixed, loads_[to].**fixed + d.**fixed) > cap)
        return;
      best = larger;
      found = {from, to, give, take};
    };
    for (int64_t to = 0; to < ranks; ++to) {
      if (to == from) continue;
      for (const auto& [give, count] : held_[from]) {
        consider(to, give, kNothing);
        for (const auto& [take, others] : held_[to]) consider(to, give, take);
      }
    }
    return found;
  }

  std::vector<OwnedLoad> kinds_;
  std::vector<OwnedLoad> loads_;
  std::vector<std::map<int64_t, int64_t>> held_;
};

// Step 3: equal parameters to the ranks that may have them, so that each bucket is shared out.
std::vector<int64_t> spread_over_buckets(const std::vector<OwnedItem>& items,
                                         const std::vector<int64_t>& kind_of,
                                         const std::vector<std::map<int64_t, int64_t>>& held) {
  struct Quota {
    int64_t rank, left;
  };
  std::map<int64_t, std::vector<Quota>> quotas;  // by kind, ranks in their order
  for (size_t rank = 0; rank < held.size(); ++rank)
    for (const auto& [kind, count] : held[rank])
      quotas[kind].push_back({static_cast<int64_t>(rank), count});

  std::vector<int64_t> owners(items.size());
  std::vector<int64_t> in_bucket(held.size());
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && items[i].bucket != items[i - 1].bucket)
      std::fill(in_bucket.begin(), in_bucket.end(), 0);
    auto better = [&](const Quota& a, const Quota& b) {  // none left: last
      return std::tuple(a.left == 0, in_bucket[a.rank], -a.left) <
             std::tuple(b.left == 0, in_bucket[b.rank], -b.left);
    };
    std::vector<Quota>& ranks = quotas.at(kind_of[i]);
    Quota& best = *std::min_element(ranks.begin(), ranks.end(), better);
    owners[i] = best.rank;
    in_bucket[best.rank] += items[i].numel;
    --best.left;
  }
  return owners;
}

}  // namespace

std::vector<int64_t> balance_owners(const std::vector<OwnedItem>& items,
                                    std::vector<OwnedLoad> before) {
  // Kinds by falling cost, then falling size: the order in which they are dealt.
  std::map<std::pair<int64_t, int64_t>, int64_t> index;
  for (const OwnedItem& item : items) index[{-item.cost, -item.numel}] = 0;
  std::vector<OwnedLoad> kinds;
  for (auto& [key, kind] : index) {
    kind = static_cast<int64_t>(kinds.size());
    kinds.push_back({-key.first, -key.second});
  }
  std::vector<int64_t> kind_of;
  for (const OwnedItem& item : items) kind_of.push_back(index.at({-item.cost, -item.numel}));

  Dealer dealer(std::move(kinds), std::move(before));
  std::vector<int64_t> sorted = kind_of;
  std::sort(sorted.begin(), sorted.end());
  dealer.deal(sorted);
  dealer.lower_largest(&OwnedLoad::cost, std::nullopt);
  dealer.lower_largest(&OwnedLoad::numel, &OwnedLoad::cost);
  return spread_over_buckets(items, kind_of, dealer.held());
}

}  // namespace muoncore::parallel
