#include "muoncore/comm/heartbeat.h"

#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

constexpr const char* kEndKey = "end_reason";

double seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; }

}  // namespace

std::string set_end_reason(Store& store, const std::string& reason) {
  return store.set_if_absent(kEndKey, reason);
}

std::optional<std::string> end_reason(Store& store) { return store.try_get(kEndKey); }

Heartbeat::Heartbeat(const Store& store, int64_t rank, int64_t world_size,
                     std::chrono::milliseconds join_timeout, const HeartbeatOptions& options,
                     std::function<void(const std::string&)> on_end)
    : store_(store), rank_(rank), options_(options), on_end_(std::move(on_end)) {
  for (int64_t r = 0; r < world_size; ++r) keys_.push_back(fmt::format("heart/{}", r));
  values_.resize(world_size);
  still_.resize(world_size, 0);
  join(join_timeout);
  beating_ = std::thread([this] { beat(); });
  watching_ = std::thread([this] { watch(); });
}

Heartbeat::~Heartbeat() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  beating_.join();  // if the store hangs, the watch still ends the process
  watching_.join();
}

void Heartbeat::join(std::chrono::milliseconds timeout) {
  store_.set(keys_[rank_], "0");
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  auto pause = std::chrono::milliseconds(5);
  while (!store_.has_all(keys_)) {
    std::optional<std::string> reason = end_reason(store_);
    if (reason) throw Error(*reason);
    if (std::chrono::steady_clock::now() > deadline) {
      std::vector<size_t> missing;
      for (size_t r = 0; r < keys_.size(); ++r)
        if (!store_.has_all({keys_[r]})) missing.push_back(r);
      fail("of {} ranks, {} did not start within {} s", keys_.size(), fmt::join(missing, ", "),
           seconds(timeout));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

bool Heartbeat::sleep(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !stopped_.wait_for(lock, time, [this] { return stop_; });
}

void Heartbeat::beat() {
  try {
    do {
      beat_once();
      ++beats_;
    } while (sleep(options_.beat));
  } catch (const Error& e) {
    end(e.what());
  }
}

void Heartbeat::beat_once() {
  store_.set(keys_[rank_], std::to_string(beats_ + 1));
  std::optional<std::string> reason = end_reason(store_);
  if (reason) return end(*reason);
  std::vector<std::string> values = store_.get_all(keys_);
  const int64_t most = options_.dead_after / options_.beat;
  for (size_t r = 0; r < values.size(); ++r) {
    still_[r] = values[r] == values_[r] ? still_[r] + 1 : 0;
    values_[r] = values[r];
    if (still_[r] > most)
      return end(set_end_reason(
          store_, fmt::format("rank {} gave no sign of life for {} s (it was ended without a word, "
                              "stopped, or lost its network)",
                              r, seconds(options_.dead_after))));
  }
}

// The store may hang without an error (its host is gone): then there are no beats.
void Heartbeat::watch() {
  const int64_t most = options_.dead_after / options_.beat;
  int64_t seen = -1;
  int64_t still = 0;
  while (sleep(options_.beat)) {
    int64_t now = beats_;
    still = now == seen ? still + 1 : 0;
    seen = now;
    if (still <= most) continue;
    end(fmt::format("the store {} did not answer for {} s", store_.address(),
                    seconds(options_.dead_after)));
    return;
  }
}

void Heartbeat::end(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (stop_ || std::exchange(ended_, true)) return;
  }
  on_end_(reason);
}

}  // namespace muoncore::comm
