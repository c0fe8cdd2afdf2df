// Where the threads of threads.h meet: sends and receives are posted here and matched.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "muoncore/comm/transport.h"

namespace muoncore::comm {

class ThreadHub : public std::enable_shared_from_this<ThreadHub> {
 public:
  ThreadHub(int64_t world_size, std::chrono::milliseconds timeout)
      : left_(world_size, false), timeout_(timeout) {}

  // The transport of one rank of the group with this key.
  std::unique_ptr<Transport> transport(const std::string& key,
                                       const std::vector<int64_t>& global_ranks, int64_t rank);
  // Ends all waiting, now and later, with this reason.
  void fail(const std::string& reason);
  // Nobody waits for this rank any more.
  void leave(int64_t global_rank);

 private:
  friend class ThreadExchange;

  enum class Progress { kPosted, kCopying, kDone };
  struct Posting {
    at::Tensor tensor;
    int64_t from = 0;  // global ranks
    int64_t to = 0;
    Progress progress = Progress::kPosted;
    std::string error;
  };
  using PostingPtr = std::shared_ptr<Posting>;
  struct Box {  // one of the two is empty
    std::deque<PostingPtr> sends;
    std::deque<PostingPtr> receives;
  };
  using BoxKey = std::tuple<std::string, int64_t, int64_t, Lane>;  // group, from, to

  void post(const BoxKey& key, PostingPtr posting, bool outgoing);
  void take_back(const BoxKey& key, const PostingPtr& posting, bool outgoing);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<BoxKey, Box> boxes_;
  std::vector<bool> left_;
  std::string failure_;
  std::chrono::milliseconds timeout_;
};

}  // namespace muoncore::comm
