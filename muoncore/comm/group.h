// A group of ranks and its collectives. Every rank of the group makes the same calls in the same
// order, with empty shards too. A back end moves bytes (transport.h); sums are made here, in one
// order: every element is summed in fp32 (fp64 for fp64) from rank 0 upwards, so that a result
// depends on the group's size alone, never on buckets, layout, overlap or back end.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muoncore/comm/rank_order.h"
#include "muoncore/comm/transport.h"
#include "muoncore/comm/worker.h"

namespace muoncore::comm {

// A collective under way. It keeps its tensors alive until it is waited for or dropped.
class Work {
 public:
  virtual ~Work() = default;
  // Blocks until the result is there. Throws Error naming the group, the rank, the collective and
  // what it was about when a peer died (LostPeer) or the time-out ran out. The second call does
  // nothing.
  virtual void wait() = 0;
};
using WorkPtr = std::shared_ptr<Work>;

enum class Collective {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kSend,
  kRecv,
  kBarrier
};
constexpr size_t kCollectives = 8;
std::string_view collective_name(Collective collective);  // "all_reduce", ...

// All tensors: contiguous, of one dtype per call, on the group's device. `what` names the call in
// errors ("grads of bucket 3"). Asynchronous calls return at once; a tensor given to one is not
// read or written by the caller until wait(). Arguments that do not fit throw Error before anything
// is sent. After the first failure every later call of the group fails with the same cause. A group
// of one rank sends nothing. Destroyed with works under way, a group ends them with an error.
class Group {
 public:
  // rank: in this group. device: where tensors must lie (any where none is given). transport: null
  // where nothing is to be performed (one rank; the recorder).
  Group(std::string name, int64_t rank, std::vector<int64_t> global_ranks,
        std::optional<at::DeviceType> device, std::unique_ptr<Transport> transport);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& name() const { return name_; }  // "dp", "tp", ...
  int64_t rank() const { return rank_; }             // in this group
  int64_t size() const { return static_cast<int64_t>(global_ranks_.size()); }
  const std::vector<int64_t>& global_ranks() const { return global_ranks_; }

  // tensor <- the reduction over all ranks' tensors, in place.
  WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op, std::string_view what);

  // input: 1-D, the shards of all ranks one after another (shard_sizes, elements; may be 0 and
  // uneven). output: 1-D of shard_sizes[rank()] elements: the sum of all ranks' shards for this
  // rank. output may be fp32 for a bf16 input, and may alias this rank's own shard of input.
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                         const std::vector<int64_t>& shard_sizes, std::string_view what);

  // buffer: 1-D, as `input` above; each rank has filled its own shard, after it all are filled.
  WorkPtr all_gather(const at::Tensor& buffer, const std::vector<int64_t>& shard_sizes,
                     std::string_view what);

  // input: 1-D, send_sizes[r] elements for each rank r; output: recv_sizes[r] elements from each.
  // They must not overlap.
  WorkPtr all_to_all(const at::Tensor& output, const std::vector<int64_t>& recv_sizes,
                     const at::Tensor& input, const std::vector<int64_t>& send_sizes,
                     std::string_view what);

  WorkPtr broadcast(const at::Tensor& tensor, int64_t root, std::string_view what);
  // Between two ranks: sends and receives meet in the order of the calls; they do not wait for
  // collectives. A send may last until the peer receives.
  WorkPtr send(const at::Tensor& tensor, int64_t to, std::string_view what);
  WorkPtr recv(const at::Tensor& tensor, int64_t from, std::string_view what);
  void barrier(std::string_view what);

  // Bytes that this rank has sent to others so far (its own shard does not count).
  int64_t bytes_sent() const;
  int64_t bytes_sent(Collective collective) const;

  // Ends all works under way, and all later ones, with an error that gives this reason. From any
  // thread.
  void abort(const std::string& reason);

 private:
  struct State;
  class Queued;
  class Direct;

  std::string where(Collective collective, std::string_view what) const;
  void check_tensor(const at::Tensor& tensor, const std::string& where) const;
  void check_flat(const at::Tensor& tensor, const std::vector<int64_t>& sizes,
                  const char* tensor_name, const std::string& where) const;
  void check_peer(int64_t peer, const std::string& where) const;
  void count(Collective collective, int64_t bytes);
  // Runs `job` on the worker, after all that were given before. `tensors` stay alive with the work.
  WorkPtr submit(std::string where, std::vector<at::Tensor> tensors, std::function<void()> job);
  WorkPtr submit_direct(std::string where, Transfer transfer);

  std::string name_;
  int64_t rank_;
  std::vector<int64_t> global_ranks_;
  std::optional<at::DeviceType> device_;
  std::array<std::atomic<int64_t>, kCollectives> bytes_{};
  std::shared_ptr<State> state_;
  std::unique_ptr<Transport> transport_;
  Worker worker_;  // ends before the transport goes
};

}  // namespace muoncore::comm
