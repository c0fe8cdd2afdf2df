// Ranks as threads of one process, which copy from one another's memory: for tests. As on a
// network, a send is done only when it was received. A rank that fails or leaves ends the others'
// waiting.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "muoncore/comm/factory.h"

namespace muoncore::comm {

// Runs fn(world) on n threads, rank r with the group "world" of all n, each with one LibTorch
// thread. When one throws, the others' collectives throw too, and the first failure is rethrown
// once all have ended. `timeout` is that of every collective.
void run_ranks(int64_t n, const std::function<void(Group& world)>& fn,
               std::chrono::milliseconds timeout = std::chrono::minutes(2));
// The same, with a factory for further groups (e.g. of a Mesh).
void run_ranks(int64_t n, const std::function<void(Group& world, GroupFactory& factory)>& fn,
               std::chrono::milliseconds timeout = std::chrono::minutes(2));

}  // namespace muoncore::comm
