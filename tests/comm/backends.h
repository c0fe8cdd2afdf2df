// The back ends that the tests of collectives run over, as ranks in threads of this process.
#pragma once

#include <ATen/Parallel.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "muoncore/comm/gloo.h"
#include "muoncore/comm/threads.h"

namespace muoncore::comm {

using RankBody = std::function<void(Group& world, GroupFactory& factory)>;

inline std::vector<int64_t> ranks_up_to(int64_t n) {
  std::vector<int64_t> ranks(n);
  for (int64_t r = 0; r < n; ++r) ranks[r] = r;
  return ranks;
}

// As run_ranks, over sockets.
inline void run_gloo_ranks(int64_t n, const RankBody& fn,
                           std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
  Store store = Store::in_process();
  std::mutex mutex;
  std::exception_ptr first;
  auto body = [&](int64_t rank) {
    try {
      at::set_num_threads(1);
      GlooOptions options;
      options.timeout = timeout;
      std::unique_ptr<GroupFactory> factory = make_gloo_factory(store, rank, n, options);
      std::unique_ptr<Group> world = factory->make("world", ranks_up_to(n));
      fn(*world, *factory);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < n; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

inline void run_backend(const std::string& backend, int64_t n, const RankBody& fn,
                        std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
  if (backend == "threads")
    run_ranks(n, fn, timeout);
  else
    run_gloo_ranks(n, fn, timeout);
}

}  // namespace muoncore::comm
