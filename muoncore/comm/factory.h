// Makes the groups of one rank on one back end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "muoncore/comm/group.h"

namespace muoncore::comm {

class GroupFactory {
 public:
  virtual ~GroupFactory() = default;
  virtual int64_t rank() const = 0;  // this process's (thread's) rank in the world
  virtual int64_t world_size() const = 0;

  // Collective over exactly the given ranks of the world, of which this must be one; their order is
  // the order of ranks in the group. Two groups of one name and the same ranks are two groups: all
  // members make them in the same order. The factory must outlive its groups. Throws Error.
  virtual std::unique_ptr<Group> make(const std::string& name,
                                      const std::vector<int64_t>& global_ranks) = 0;

  // Ends all works under way in its groups, and all later ones, with an error that gives this
  // reason. From any thread.
  virtual void abort(const std::string& reason) = 0;
};

// The place of `rank` in global_ranks; throws Error when it has none, or one is not in the world.
int64_t place_in(const std::string& name, const std::vector<int64_t>& global_ranks, int64_t rank,
                 int64_t world_size);

}  // namespace muoncore::comm
