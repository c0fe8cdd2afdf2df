// Which rank owns which whole parameter in a `balanced` layout: steps 1 to 3 of balanced_layout.h.
#pragma once

#include <cstdint>
#include <vector>

#include "muoncore/parallel/param_layout.h"

namespace muoncore::parallel {

// One whole parameter to be dealt.
struct OwnedItem {
  int64_t cost;
  int64_t numel;
  int64_t bucket;
};

// The owner of each item, in [0, before.size()); before[r] is what rank r owns already. Items stand
// in the order of their buckets. Deterministic.
std::vector<int64_t> balance_owners(const std::vector<OwnedItem>& items,
                                    std::vector<OwnedLoad> before);

}  // namespace muoncore::parallel
