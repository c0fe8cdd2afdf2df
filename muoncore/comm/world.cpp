#include "muoncore/comm/world.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <utility>

#include "muoncore/comm/gloo.h"
#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

constexpr const char* kFinished = "finished";
constexpr const char* kLeft = "left";
constexpr const char* kSpeakers = "speakers";

std::vector<int64_t> all_ranks(int64_t n) {
  std::vector<int64_t> ranks(n);
  for (int64_t r = 0; r < n; ++r) ranks[r] = r;
  return ranks;
}

class LoneFactory : public GroupFactory {
 public:
  int64_t rank() const override { return 0; }
  int64_t world_size() const override { return 1; }
  std::unique_ptr<Group> make(const std::string& name,
                              const std::vector<int64_t>& global_ranks) override {
    place_in(name, global_ranks, 0, 1);
    return std::make_unique<Group>(name, 0, global_ranks, std::nullopt, nullptr);
  }
  void abort(const std::string&) override {}
};

Store open_store(const LaunchEnv& env, std::chrono::milliseconds timeout) {
  Store store = env.rank == 0 && !env.agent_store
                    ? Store::serve(env.master_port)
                    : Store::connect(env.master_addr, env.master_port, timeout);
  return store.prefixed(fmt::format("muoncore/{}", env.run_id));
}

}  // namespace

World::World(const LaunchEnv& env, WorldOptions options) : env_(env), options_(std::move(options)) {
  if (!options_.last_words)
    options_.last_words = [](const std::string& reason) {
      std::fputs(fmt::format("error: {}\n", reason).c_str(), stderr);
    };
  if (size() == 1) {
    factory_ = std::make_unique<LoneFactory>();
  } else {
    store_ = open_store(env_, options_.join_timeout);
    GlooOptions gloo;
    gloo.timeout = options_.timeout;
    gloo.one_host = env_.hosts() == 1;
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    if (interface) gloo.interface = interface;
    factory_ = make_gloo_factory(*store_, rank(), size(), gloo);
  }
  try {
    meet();
  } catch (const Error& error) {
    const std::string reason = settle(error.what(), /*lost_peer=*/true);
    quiet();
    if (speaks()) throw Error(reason);
    throw SaidElsewhere(reason);
  }
}

void World::meet() {
  if (size() > 1)
    heartbeat_ = std::make_unique<Heartbeat>(store_->clone(), rank(), size(), options_.join_timeout,
                                             options_.heartbeat,
                                             [this](const std::string& reason) { on_end(reason); });
  group_ = factory_->make("world", all_ranks(size()));
}

// What the heartbeat finds from now on is not said.
void World::quiet() {
  {
    std::lock_guard lock(mutex_);
    gone_ = true;
  }
  changed_.notify_all();
}

World::~World() {
  quiet();
  heartbeat_.reset();
}

std::optional<std::string> World::known_reason() {
  std::lock_guard lock(mutex_);
  return reason_;
}

void World::run(const std::function<void()>& program) {
  if (size() == 1) return program();
  std::string reason;
  try {
    program();
    finish();
    return;
  } catch (const LostPeer& e) {
    reason = settle(e.what(), /*lost_peer=*/true);
  } catch (const std::exception& e) {
    reason = settle(e.what(), /*lost_peer=*/false);
  }
  factory_->abort(reason);
  {
    std::lock_guard lock(mutex_);
    speaking_ = true;
  }
  throw Error(reason);
}

std::string World::abort(const std::string& reason) {
  if (size() == 1) return reason;
  try {
    return set_end_reason(*store_, fmt::format("rank {}: {}", rank(), reason));
  } catch (const Error&) {
    return fmt::format("rank {}: {}", rank(), reason);  // the store is gone, too
  }
}

std::string World::settle(const std::string& reason, bool lost_peer) {
  if (std::optional<std::string> known = known_reason()) return *known;
  if (lost_peer) {
    const auto deadline = std::chrono::steady_clock::now() + options_.listen;
    try {
      while (std::chrono::steady_clock::now() < deadline) {
        if (std::optional<std::string> known = end_reason(*store_)) return *known;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    } catch (const Error&) {  // the store is gone, too: what is known here must do
    }
  }
  return abort(reason);
}

void World::finish() {
  int64_t finished = store_->add(kFinished, 1);
  auto pause = std::chrono::milliseconds(2);
  while (finished < size()) {
    if (std::optional<std::string> known = known_reason()) throw Error(*known);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(100));
    finished = store_->add(kFinished, 0);
  }
  leave();
}

// A rank that serves the store stays until the others need it no more.
void World::leave() {
  int64_t left = store_->add(kLeft, 1);
  if (rank() != 0 || env_.agent_store) return;
  const auto deadline = std::chrono::steady_clock::now() + options_.grace;
  while (left < size() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    left = store_->add(kLeft, 0);
  }
}

void World::on_end(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    reason_ = reason;
  }
  factory_->abort(reason);
  bool said;
  {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, options_.grace, [this] { return gone_; })) return;
    said = speaking_;
  }
  if (!said && speaks()) options_.last_words(reason);
  ::_exit(1);
}

// Asked in a thread of its own: a store whose host is gone may never answer, and somebody must
// speak.
bool World::speaks() {
  if (size() == 1) return true;
  auto first = std::make_shared<std::promise<bool>>();
  std::future<bool> answer = first->get_future();
  std::thread([first, store = *store_]() mutable {
    try {
      first->set_value(store.add(kSpeakers, 1) == 1);
    } catch (const Error&) {
      first->set_value(true);
    }
  }).detach();
  return answer.wait_for(options_.listen) == std::future_status::timeout || answer.get();
}

void World::agree(const std::string& name, uint64_t hash) {
  at::Tensor hashes = at::empty({size()}, at::kLong);
  auto* data = hashes.mutable_data_ptr<int64_t>();
  data[rank()] = static_cast<int64_t>(hash);
  group_->all_gather(hashes, std::vector<int64_t>(size(), 1), fmt::format("the hash of {}", name))
      ->wait();
  std::vector<int64_t> differ;
  for (int64_t r = 1; r < size(); ++r)
    if (data[r] != data[0]) differ.push_back(r);
  check(differ.empty(), "{} is not the same on all ranks: rank {} differ{} from rank 0", name,
        fmt::join(differ, ", "), differ.size() == 1 ? "s" : "");
}

}  // namespace muoncore::comm
