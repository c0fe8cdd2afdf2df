// All ranks of a run: the store, the group of all, and how they end together.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "muoncore/comm/factory.h"
#include "muoncore/comm/heartbeat.h"
#include "muoncore/comm/launch.h"
#include "muoncore/comm/store.h"
#include "muoncore/core/check.h"

namespace muoncore::comm {

// Thrown where another rank says the same to people.
class SaidElsewhere : public Error {
 public:
  using Error::Error;
};

struct WorldOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of a collective (nccl_timeout)
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);  // for all ranks to be there
  HeartbeatOptions heartbeat;
  // After a reason to end is known: for the program to end by itself before it is ended.
  std::chrono::milliseconds grace{3000};
  // A rank that lost a peer waits this long for somebody to say why.
  std::chrono::milliseconds listen{2000};
  // Says the reason when the program does not come to it (it hangs), just before it is ended.
  std::function<void(const std::string& reason)> last_words;  // default: "error: ..." on stderr
};

class World {
 public:
  // Collective over all ranks that the launcher started; waits for them up to `join_timeout`.
  // Without a launcher, or with one rank: a world of one, no store, no threads. Throws Error, on
  // all but one rank SaidElsewhere.
  World(const LaunchEnv& env, WorldOptions options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t rank() const { return env_.rank; }
  int64_t size() const { return env_.world_size; }
  const LaunchEnv& env() const { return env_; }
  Group& group() { return *group_; }
  GroupFactory& factory() { return *factory_; }

  // Runs the program's part that needs all ranks, then waits until all have come through theirs.
  // When any rank fails, dies or falls silent, all throw Error with one and the same reason (a
  // world of one: what it threw): "rank 2:
  // ..."; one that hangs is ended, after its last words, with status 1 by _exit. To be called once.
  void run(const std::function<void()>& program);

  // Tells the others why this rank ends; returns the reason that stands, its own or an earlier one.
  // run() does this.
  std::string abort(const std::string& reason);

  // After run() threw: whether this rank is the one that says so to people. True on one rank that
  // is alive (on each where the store is gone or does not answer).
  bool speaks();

  // Collective: throws the same Error on all ranks unless all give the same hash. name: what was
  // hashed, for the error ("the config").
  void agree(const std::string& name, uint64_t hash);

 private:
  void meet();
  void quiet();
  std::string settle(const std::string& reason, bool lost_peer);
  void finish();
  void leave();
  void on_end(const std::string& reason);
  std::optional<std::string> known_reason();

  LaunchEnv env_;
  WorldOptions options_;
  std::optional<Store> store_;
  std::unique_ptr<GroupFactory> factory_;
  std::unique_ptr<Group> group_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> reason_;  // to end, once known
  bool speaking_ = false;              // run() has thrown it: the program says it
  bool gone_ = false;                  // in the destructor
  std::unique_ptr<Heartbeat> heartbeat_;
};

}  // namespace muoncore::comm
