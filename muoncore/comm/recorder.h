// Groups that perform nothing and count what would be sent, at any world size: for plans. Tensors
// may be on any device, also "meta" (no memory).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "muoncore/comm/factory.h"

namespace muoncore::comm {

class RecorderFactory : public GroupFactory {
 public:
  RecorderFactory(int64_t rank, int64_t world_size);

  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_size_; }
  // Local: nobody else is needed.
  std::unique_ptr<Group> make(const std::string& name,
                              const std::vector<int64_t>& global_ranks) override;
  void abort(const std::string& reason) override;

 private:
  int64_t rank_;
  int64_t world_size_;
};

}  // namespace muoncore::comm
