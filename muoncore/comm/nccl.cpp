#define USE_C10D_NCCL  // the wheel's library has it; without this its header declares nothing
#include "muoncore/comm/nccl.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/env.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "muoncore/comm/store_impl.h"
#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

using Clock = std::chrono::steady_clock;
using C10dWork = c10::intrusive_ptr<c10d::Work>;
using C10dGroup = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

// One communicator and stream each. A ProcessGroupNCCL is used by one thread at a time: the worker
// posts collectives, the caller the rest.
enum Channel : size_t { kCollectives, kUp, kDown };
constexpr std::array<const char*, 3> kChannels = {"collectives", "up", "down"};

// For the others to end their communicators when all ends well.
constexpr std::chrono::seconds kCloseTime{5};

// What the exchanges of a group share with it.
class Connections {
 public:
  Connections(at::Device device, int64_t rank, std::vector<int64_t> global_ranks,
              std::chrono::milliseconds timeout)
      : device_(device), rank_(rank), global_ranks_(std::move(global_ranks)), timeout_(timeout) {}

  ~Connections() {
    if (!aborted_.empty()) return;  // under way already
    end_groups(/*orderly=*/dropped_->empty(), kCloseTime);
  }

  // Blocks until all ranks of the group have come.
  void connect(const std::string& name, const c10::intrusive_ptr<c10d::Store>& store) {
    for (size_t channel = 0; channel < kChannels.size(); ++channel) {
      auto options = c10d::ProcessGroupNCCL::Options::create();
      options->timeout = timeout_;
      options->config.blocking = 1;
      options->group_name = fmt::format("{}/{}", name, kChannels[channel]);
      options->global_ranks_in_group.assign(global_ranks_.begin(), global_ranks_.end());
      groups_[channel] = c10::make_intrusive<c10d::ProcessGroupNCCL>(
          c10::make_intrusive<c10d::PrefixStore>(kChannels[channel], store),
          static_cast<int>(rank_), static_cast<int>(global_ranks_.size()), options);
      groups_[channel]->eagerConnectSingleDevice(device_);
    }
  }

  const at::Device& device() const { return device_; }
  int64_t rank() const { return rank_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  int64_t global_rank(int64_t peer) const { return global_ranks_[static_cast<size_t>(peer)]; }
  c10d::ProcessGroupNCCL& group(Channel channel) { return *groups_[channel]; }

  void abort(const std::string& reason) {
    std::lock_guard lock(mutex_);
    if (!aborted_.empty()) return;
    aborted_ = reason;
    end_groups(/*orderly=*/false, std::chrono::seconds(0));
  }
  void check_aborted() {
    std::lock_guard lock(mutex_);
    check(aborted_.empty(), "{}", aborted_);
  }
  void keep(const std::vector<Transfer>& transfers) {
    std::lock_guard lock(mutex_);
    for (const Transfer& transfer : transfers) dropped_->push_back(transfer.tensor);
  }

 private:
  // NCCL may block for ever when it ends a communicator whose peers are gone, and communicators of
  // one device wait for one another: each is ended on a thread of its own, which owns what it needs
  // and is waited for no longer than `patience`.
  void end_groups(bool orderly, std::chrono::milliseconds patience) {
    const auto deadline = Clock::now() + patience;
    std::vector<std::future<void>> ended;
    for (C10dGroup& group : groups_) {
      if (!group) continue;
      std::promise<void> promise;
      ended.push_back(promise.get_future());
      std::thread([group, orderly, device = device_, tensors = dropped_,
                   promise = std::move(promise)]() mutable {
        try {
          c10::cuda::CUDAGuard guard(device);
          orderly ? group->shutdown() : group->abort();
        } catch (const std::exception&) {  // an error of this group has been given already
        }
        promise.set_value();
      }).detach();
    }
    for (std::future<void>& future : ended) future.wait_until(deadline);
  }

  at::Device device_;
  int64_t rank_;  // in the group
  std::vector<int64_t> global_ranks_;
  std::chrono::milliseconds timeout_;
  std::array<C10dGroup, kChannels.size()> groups_;

  std::mutex mutex_;
  std::string aborted_;
  // Of exchanges that nobody waited for. Until the communicators are ended they may be written.
  std::shared_ptr<std::vector<at::Tensor>> dropped_ = std::make_shared<std::vector<at::Tensor>>();
};

class NcclExchange : public Exchange {
 public:
  explicit NcclExchange(std::shared_ptr<Connections> connections)
      : connections_(std::move(connections)) {}

  ~NcclExchange() override {
    for (const Posted& posted : posted_)
      if (!posted.done) connections_->keep(posted.transfers);
  }

  // Apart from the constructor: when one cannot be posted, the destructor keeps the others'
  // tensors.
  void post_all(std::vector<Transfer> transfers, Lane lane) {
    std::array<std::vector<Transfer>, kChannels.size()> by_channel;
    for (Transfer& transfer : transfers) {
      check(transfer.tensor.device() == connections_->device(),
            "the tensor lies on {}, not on this rank's device {}", transfer.tensor.device().str(),
            connections_->device().str());
      const bool up = transfer.outgoing == (transfer.peer > connections_->rank());
      const Channel channel = lane == Lane::kCollective ? kCollectives : (up ? kUp : kDown);
      by_channel[channel].push_back(std::move(transfer));
    }
    for (size_t channel = 0; channel < kChannels.size(); ++channel)
      if (!by_channel[channel].empty())
        post(static_cast<Channel>(channel), std::move(by_channel[channel]));
  }

  void wait() override {
    const auto deadline = Clock::now() + connections_->timeout();
    for (Posted& posted : posted_) {
      wait_on_host(posted, deadline);
      guarded(posted, [&] { return posted.work->wait(); });  // throws what NCCL reported
      posted.done = true;
    }
  }

 private:
  struct Posted {
    std::vector<Transfer> transfers;  // alive until they are done
    C10dWork work;
    bool done = false;
  };

  void post(Channel channel, std::vector<Transfer> transfers) {
    posted_.push_back({std::move(transfers), nullptr});
    Posted& posted = posted_.back();
    c10d::ProcessGroupNCCL& group = connections_->group(channel);
    posted.work = guarded(posted, [&] {
      c10::cuda::CUDAGuard guard(connections_->device());
      group.startCoalescing();
      try {
        for (const Transfer& transfer : posted.transfers) add(group, transfer);
      } catch (...) {
        group.endCoalescing();  // or the thread's NCCL group stays open
        throw;
      }
      return group.endCoalescing();
    });
    check(posted.work, "NCCL gave no handle of {}", peers(posted));
  }

  static void add(c10d::ProcessGroupNCCL& group, const Transfer& transfer) {
    std::vector<at::Tensor> tensors{transfer.tensor};
    const int peer = static_cast<int>(transfer.peer);
    if (transfer.outgoing)
      group.send(tensors, peer, /*tag=*/0);
    else
      group.recv(tensors, peer, /*tag=*/0);
  }

  // c10d's own wait does not look at abort().
  void wait_on_host(const Posted& posted, Clock::time_point deadline) {
    auto pause = std::chrono::microseconds(10);
    while (!guarded(posted, [&] { return posted.work->isCompleted(); })) {
      connections_->check_aborted();
      if (Clock::now() > deadline) {
        std::string text = fmt::format("{} did not answer within {} s (nccl_timeout)",
                                       peers(posted), seconds(connections_->timeout()));
        connections_->abort(text);
        throw Error(text);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(500));
    }
    connections_->check_aborted();  // an aborted transfer is completed, too
  }

  template <typename Fn>
  auto guarded(const Posted& posted, const Fn& fn) -> decltype(fn()) {
    try {
      return fn();
    } catch (const std::exception& e) {
      connections_->check_aborted();
      std::string text = fmt::format("NCCL failed with {} ({})", peers(posted), plain_text(e));
      connections_->abort(text);
      throw LostPeer(text);
    }
  }

  static double seconds(std::chrono::milliseconds time) {
    return static_cast<double>(time.count()) / 1000;
  }

  // NCCL does not say which of them it waits for.
  std::string peers(const Posted& posted) const {
    std::vector<int64_t> ranks;
    for (const Transfer& transfer : posted.transfers)
      ranks.push_back(connections_->global_rank(transfer.peer));
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "one of the ranks",
                       fmt::join(ranks, ", "));
  }

  std::shared_ptr<Connections> connections_;
  std::vector<Posted> posted_;
};

class NcclTransport : public Transport {
 public:
  explicit NcclTransport(std::shared_ptr<Connections> connections)
      : connections_(std::move(connections)) {}

  std::unique_ptr<Exchange> start(std::vector<Transfer> transfers, Lane lane) override {
    connections_->check_aborted();
    auto exchange = std::make_unique<NcclExchange>(connections_);
    exchange->post_all(std::move(transfers), lane);
    return exchange;
  }
  void abort(const std::string& reason) override { connections_->abort(reason); }

 private:
  std::shared_ptr<Connections> connections_;
};

class NcclFactory : public GroupFactory {
 public:
  NcclFactory(const Store& store, int64_t rank, int64_t world_size, const NcclOptions& options)
      : store_(store), rank_(rank), world_size_(world_size), timeout_(options.timeout) {
    const int64_t devices = c10::cuda::device_count();
    check(options.local_rank >= 0 && options.local_rank < devices,
          "rank {} of {} asked for NCCL on cuda:{}, and this machine shows {} CUDA device{}; start "
          "one rank per device (see CUDA_VISIBLE_DEVICES), or use gloo",
          rank, world_size, options.local_rank, devices, devices == 1 ? "" : "s");
    device_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(options.local_rank));
    c10::cuda::set_device(device_.index());
    c10::utils::set_env("TORCH_NCCL_BLOCKING_WAIT", "1");
  }

  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_size_; }

  std::unique_ptr<Group> make(const std::string& name,
                              const std::vector<int64_t>& global_ranks) override {
    const int64_t place = place_in(name, global_ranks, rank_, world_size_);
    std::unique_ptr<Transport> transport;
    if (global_ranks.size() > 1) transport = connect(name, global_ranks, place);
    return std::make_unique<Group>(name, place, global_ranks, at::kCUDA, std::move(transport));
  }

  void abort(const std::string& reason) override {
    std::lock_guard lock(mutex_);
    aborted_ = reason;
    for (const std::weak_ptr<Connections>& weak : made_)
      if (auto connections = weak.lock()) connections->abort(reason);
  }

 private:
  std::unique_ptr<Transport> connect(const std::string& name,
                                     const std::vector<int64_t>& global_ranks, int64_t place) {
    std::string key = fmt::format("{}[{}]", name, fmt::join(global_ranks, ","));
    key += fmt::format("#{}", count_[key]++);
    auto connections = std::make_shared<Connections>(device_, place, global_ranks, timeout_);
    try {
      connections->connect(
          key, c10::make_intrusive<c10d::PrefixStore>("nccl/" + key, store_.impl().store));
    } catch (const std::exception& e) {
      std::string text =
          fmt::format("group {} (rank {} of {}): its ranks could not be connected: {}", name, place,
                      global_ranks.size(), plain_text(e));
      connections->abort(text);
      throw LostPeer(text);
    }
    std::lock_guard lock(mutex_);
    made_.push_back(connections);
    if (!aborted_.empty()) connections->abort(aborted_);
    return std::make_unique<NcclTransport>(connections);
  }

  Store store_;
  int64_t rank_;
  int64_t world_size_;
  std::chrono::milliseconds timeout_;
  at::Device device_{at::kCUDA, 0};
  std::map<std::string, int64_t> count_;  // groups made, by name and ranks

  std::mutex mutex_;
  std::vector<std::weak_ptr<Connections>> made_;
  std::string aborted_;
};

}  // namespace

bool nccl_is_built() { return true; }

std::unique_ptr<GroupFactory> make_nccl_factory(const Store& store, int64_t rank,
                                                int64_t world_size, const NcclOptions& options) {
  return std::make_unique<NcclFactory>(store, rank, world_size, options);
}

}  // namespace muoncore::comm
