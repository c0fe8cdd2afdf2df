#include "muoncore/comm/factory.h"

#include <fmt/ranges.h>
#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::comm {

int64_t place_in(const std::string& name, const std::vector<int64_t>& global_ranks, int64_t rank,
                 int64_t world_size) {
  for (int64_t member : global_ranks)
    check(member >= 0 && member < world_size, "group {}: rank {} is not in a world of {}", name,
          member, world_size);
  auto found = std::find(global_ranks.begin(), global_ranks.end(), rank);
  check(found != global_ranks.end(), "group {}: rank {} is not one of its ranks [{}]", name, rank,
        fmt::join(global_ranks, ", "));
  return found - global_ranks.begin();
}

}  // namespace muoncore::comm
