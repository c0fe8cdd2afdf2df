// Finds ranks that died or hang where no closed socket tells: each rank's heart beats in the store,
// in threads of its own, so that a rank that is slow (a long rollout, a checkpoint) but alive never
// looks dead. The store also carries the reason for which a run ends, the same for all ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "muoncore/comm/store.h"

namespace muoncore::comm {

struct HeartbeatOptions {
  std::chrono::milliseconds beat{2000};
  std::chrono::milliseconds dead_after{15000};  // without a beat; counted in beats of this rank, so
                                                // that a machine that slept accuses nobody
};

// The run's reason to end: the first one that any rank, or the launcher, gives. Returns the one
// that stands.
std::string set_end_reason(Store& store, const std::string& reason);
std::optional<std::string> end_reason(Store& store);

class Heartbeat {
 public:
  // store: a connection of its own. on_end(reason) is called once, in a thread of the heartbeat,
  // when a rank's heart has stopped, the store is gone or does not answer, or an end reason stands
  // there. Waits up to `join_timeout` for all ranks to be there; throws Error naming the missing.
  Heartbeat(const Store& store, int64_t rank, int64_t world_size,
            std::chrono::milliseconds join_timeout, const HeartbeatOptions& options,
            std::function<void(const std::string&)> on_end);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void join(std::chrono::milliseconds timeout);
  void beat();
  void watch();
  void beat_once();
  void end(const std::string& reason);
  bool sleep(std::chrono::milliseconds time);  // false: the heartbeat is to stop

  Store store_;
  int64_t rank_;
  HeartbeatOptions options_;
  std::function<void(const std::string&)> on_end_;
  std::vector<std::string> keys_;    // one per rank
  std::vector<std::string> values_;  // as last seen
  std::vector<int64_t> still_;       // beats of ours since the value changed
  std::atomic<int64_t> beats_{0};

  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  bool ended_ = false;
  std::thread beating_;
  std::thread watching_;
};

}  // namespace muoncore::comm
