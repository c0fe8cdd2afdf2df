#include "muoncore/comm/threads.h"

#include <ATen/Parallel.h>

#include <fmt/ranges.h>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "muoncore/comm/thread_hub.h"
#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

class ThreadFactory : public GroupFactory {
 public:
  ThreadFactory(std::shared_ptr<ThreadHub> hub, int64_t rank, int64_t world_size)
      : hub_(std::move(hub)), rank_(rank), world_size_(world_size) {}

  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return world_size_; }

  std::unique_ptr<Group> make(const std::string& name,
                              const std::vector<int64_t>& global_ranks) override {
    const int64_t place = place_in(name, global_ranks, rank_, world_size_);
    std::string key = fmt::format("{}[{}]", name, fmt::join(global_ranks, ","));
    key += fmt::format("#{}", made_[key]++);
    std::unique_ptr<Transport> transport;
    if (global_ranks.size() > 1) transport = hub_->transport(key, global_ranks, place);
    return std::make_unique<Group>(name, place, global_ranks, at::kCPU, std::move(transport));
  }

  void abort(const std::string& reason) override { hub_->fail(reason); }

 private:
  std::shared_ptr<ThreadHub> hub_;
  int64_t rank_;
  int64_t world_size_;
  std::map<std::string, int64_t> made_;
};

std::vector<int64_t> all_ranks(int64_t n) {
  std::vector<int64_t> ranks(n);
  for (int64_t r = 0; r < n; ++r) ranks[r] = r;
  return ranks;
}

}  // namespace

void run_ranks(int64_t n, const std::function<void(Group& world, GroupFactory& factory)>& fn,
               std::chrono::milliseconds timeout) {
  check(n >= 1, "run_ranks: {} ranks", n);
  auto hub = std::make_shared<ThreadHub>(n, timeout);
  std::mutex mutex;
  std::exception_ptr first;
  auto failed = [&](int64_t rank, const char* text) {
    std::lock_guard lock(mutex);
    if (first) return;
    first = std::current_exception();
    hub->fail(fmt::format("rank {} failed: {}", rank, text));
  };
  auto body = [&](int64_t rank) {
    try {
      at::set_num_threads(1);
      ThreadFactory factory(hub, rank, n);
      std::unique_ptr<Group> world = factory.make("world", all_ranks(n));
      fn(*world, factory);
    } catch (const std::exception& e) {
      failed(rank, e.what());
    } catch (...) {
      failed(rank, "unknown exception");
    }
    hub->leave(rank);
  };
  const int caller_threads = at::get_num_threads();
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < n; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
  at::set_num_threads(caller_threads);  // the ranks' setting is the default of threads to come
  if (first) std::rethrow_exception(first);
}

void run_ranks(int64_t n, const std::function<void(Group& world)>& fn,
               std::chrono::milliseconds timeout) {
  run_ranks(
      n, [&fn](Group& world, GroupFactory&) { fn(world); }, timeout);
}

}  // namespace muoncore::comm
