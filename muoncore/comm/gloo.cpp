#define USE_C10D_GLOO  // the wheel's library has it; without this its header declares nothing
#include "muoncore/comm/gloo.h"

#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "muoncore/comm/store_impl.h"
#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

using Clock = std::chrono::steady_clock;
using C10dWork = c10::intrusive_ptr<c10d::Work>;

// What the exchanges of a group share with it.
struct Connections {
  std::unique_ptr<c10d::ProcessGroupGloo> group;
  std::vector<int64_t> global_ranks;
  std::chrono::milliseconds timeout;

  std::mutex mutex;
  std::string aborted;
  std::set<c10d::Work*> under_way;  // those that may be blocked in a wait

  void abort(const std::string& reason) {
    std::lock_guard lock(mutex);
    if (!aborted.empty()) return;
    aborted = reason;
    for (c10d::Work* work : under_way) work->abort();
  }
  void check_aborted() {
    std::lock_guard lock(mutex);
    check(aborted.empty(), "{}", aborted);
  }
};

class GlooExchange : public Exchange {
 public:
  explicit GlooExchange(std::shared_ptr<Connections> connections)
      : connections_(std::move(connections)) {}

  ~GlooExchange() override {
    std::lock_guard lock(connections_->mutex);
    for (const Posted& posted : posted_) connections_->under_way.erase(posted.work.get());
  }

  // Apart from the constructor: when one cannot be posted, the destructor takes the others back.
  void post_all(std::vector<Transfer> transfers, Lane lane) {
    // What is awaited is posted first: a peer's data then goes straight to its place.
    std::stable_partition(transfers.begin(), transfers.end(),
                          [](const Transfer& transfer) { return !transfer.outgoing; });
    for (Transfer& transfer : transfers) post(transfer, static_cast<int>(lane));
  }

  void wait() override {
    const auto deadline = Clock::now() + connections_->timeout;
    for (const Posted& posted : posted_) {
      auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      bool done = guarded(posted.peer, deadline, [&] {
        return posted.work->wait(std::max(left, std::chrono::milliseconds(1)));
      });
      if (!done) connections_->check_aborted();
      check(done, "the transfer with rank {} was ended", posted.peer);
    }
  }

 private:
  struct Posted {
    C10dWork work;
    int64_t peer;  // global
  };

  void post(Transfer& transfer, int tag) {
    const int64_t peer = connections_->global_ranks[transfer.peer];
    const int to = static_cast<int>(transfer.peer);
    std::vector<at::Tensor> tensors{transfer.tensor};
    C10dWork work = guarded(peer, Clock::time_point::max(), [&] {
      return transfer.outgoing ? connections_->group->send(tensors, to, tag)
                               : connections_->group->recv(tensors, to, tag);
    });
    posted_.push_back({work, peer});
    std::lock_guard lock(connections_->mutex);
    connections_->under_way.insert(work.get());
    if (!connections_->aborted.empty()) work->abort();
  }

  template <typename Fn>
  auto guarded(int64_t peer, Clock::time_point deadline, const Fn& fn) -> decltype(fn()) {
    try {
      return fn();
    } catch (const std::exception& e) {
      connections_->check_aborted();
      check(Clock::now() < deadline, "rank {} did not answer within {} s (nccl_timeout)", peer,
            static_cast<double>(connections_->timeout.count()) / 1000);
      throw LostPeer(fmt::format("rank {} is gone ({})", peer, plain_text(e)));
    }
  }

  std::shared_ptr<Connections> connections_;
  std::vector<Posted> posted_;
};

class GlooTransport : public Transport {
 public:
  explicit GlooTransport(std::shared_ptr<Connections> connections)
      : connections_(std::move(connections)) {}

  std::unique_ptr<Exchange> start(std::vector<Transfer> transfers, Lane lane) override {
    connections_->check_aborted();
    auto exchange = std::make_unique<GlooExchange>(connections_);
    exchange->post_all(std::move(transfers), lane);
    return exchange;
  }
  void abort(const std::string& reason) override { connections_->abort(reason); }

 private:
  std::shared_ptr<Connections> connections_;
};

// Returns once every rank has said that it is connected to all. Without it a rank that needs
// nothing of the others could be done and gone while one of them still connects to it.
void greet(const std::shared_ptr<Connections>& connections, int64_t place) {
  const int64_t size = static_cast<int64_t>(connections->global_ranks.size());
  std::vector<Transfer> greetings;
  for (int64_t peer = 0; peer < size; ++peer) {
    if (peer == place) continue;
    for (bool outgoing : {false, true})
      greetings.push_back({at::zeros({1}, at::kByte), peer, outgoing});
  }
  GlooTransport(connections).start(std::move(greetings), Lane::kCollective)->wait();
}

class GlooFactory : public GroupFactory {
 public:
  GlooFactory(const Store& store, int64_t rank, int64_t world_size, const GlooOptions& options)
      : store_(store), rank_(rank), world_size_(world_size), options_(options) {
    try {
      if (options.one_host)
        device_ = c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
      else if (!options.interface.empty())
        device_ = c10d::ProcessGroupGloo::createDeviceForInterface(options.interface);
      else
        device_ = c10d::ProcessGroupGloo::createDefaultDevice();
    } catch (const std::exception& e) {
      fail("gloo: no network device{}: {}",
           options.one_host ? " 127.0.0.1"
                            : (options.interface.empty() ? "" : " " + options.interface),
           plain_text(e));
    }
  }

  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_size_; }

  std::unique_ptr<Group> make(const std::string& name,
                              const std::vector<int64_t>& global_ranks) override {
    const int64_t place = place_in(name, global_ranks, rank_, world_size_);
    std::unique_ptr<Transport> transport;
    if (global_ranks.size() > 1) transport = connect(name, global_ranks, place);
    return std::make_unique<Group>(name, place, global_ranks, at::kCPU, std::move(transport));
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
    auto options = c10d::ProcessGroupGloo::Options::create(options_.timeout);
    options->devices.push_back(device_);
    options->threads = 1;  // ours does the waiting
    auto connections = std::make_shared<Connections>();
    connections->global_ranks = global_ranks;
    connections->timeout = options_.timeout;
    try {
      auto store = c10::make_intrusive<c10d::PrefixStore>("gloo/" + key, store_.impl().store);
      connections->group = std::make_unique<c10d::ProcessGroupGloo>(
          store, static_cast<int>(place), static_cast<int>(global_ranks.size()), options);
      greet(connections, place);
    } catch (const std::exception& e) {
      throw LostPeer(fmt::format("group {} (rank {} of {}): its ranks could not be connected: {}",
                                 name, place, global_ranks.size(), plain_text(e)));
    }
    std::lock_guard lock(mutex_);
    made_.push_back(connections);
    if (!aborted_.empty()) connections->abort(aborted_);
    return std::make_unique<GlooTransport>(connections);
  }

  Store store_;
  int64_t rank_;
  int64_t world_size_;
  GlooOptions options_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::map<std::string, int64_t> count_;  // groups made, by name and ranks

  std::mutex mutex_;
  std::vector<std::weak_ptr<Connections>> made_;
  std::string aborted_;
};

}  // namespace

std::unique_ptr<GroupFactory> make_gloo_factory(const Store& store, int64_t rank,
                                                int64_t world_size, const GlooOptions& options) {
  return std::make_unique<GlooFactory>(store, rank, world_size, options);
}

}  // namespace muoncore::comm
