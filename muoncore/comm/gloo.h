// Ranks as processes (or threads) over sockets: c10d's ProcessGroupGloo. CPU tensors.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "muoncore/comm/factory.h"
#include "muoncore/comm/store.h"

namespace muoncore::comm {

struct GlooOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of each collective
  bool one_host = true;   // all ranks of the world: talk over the loopback interface
  std::string interface;  // else over this one ("eth0"); empty: the one of the host's name
};

// Each group connects every pair of its ranks; one that dies is seen by its closed socket
// (LostPeer).
std::unique_ptr<GroupFactory> make_gloo_factory(const Store& store, int64_t rank,
                                                int64_t world_size, const GlooOptions& options);

}  // namespace muoncore::comm
