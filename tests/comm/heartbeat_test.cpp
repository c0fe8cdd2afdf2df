// Hearts in one process, with short times: who is dead, who is only slow, and what all are told.
#include "muoncore/comm/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "muoncore/core/check.h"
#include "tests/support/error_of.h"

namespace muoncore::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr HeartbeatOptions kQuick{20ms, 300ms};

// One rank: its heart, and the reason that it was told.
class Rank {
 public:
  Rank(const Store& store, int64_t rank, int64_t n)
      : heart_(store, rank, n, 5s, kQuick, [this](const std::string& reason) {
          std::lock_guard lock(mutex_);
          reason_ = reason;
          changed_.notify_all();
        }) {}

  std::string reason_within(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [this] { return reason_.has_value(); });
    return reason_.value_or("none");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> reason_;
  Heartbeat heart_;
};

std::vector<std::unique_ptr<Rank>> start(const Store& store, int64_t n) {
  std::vector<std::unique_ptr<Rank>> ranks(n);
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < n; ++r)
    threads.emplace_back(
        [&ranks, &store, r, n] { ranks[r] = std::make_unique<Rank>(store, r, n); });
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

TEST(Heartbeat, ARankWithoutAHeartIsNamedToAllOthers) {
  Store store = Store::in_process();
  auto ranks = start(store, 3);
  EXPECT_EQ(ranks[0]->reason_within(600ms), "none");  // alive, though no rank does anything
  ranks[1].reset();
  std::string reason = ranks[0]->reason_within(10s);
  EXPECT_THAT(reason, HasSubstr("rank 1 gave no sign of life for 0.3 s"));
  EXPECT_EQ(ranks[2]->reason_within(10s), reason);
}

TEST(Heartbeat, AReasonToEndReachesAllAndTheFirstStands) {
  Store store = Store::in_process();
  auto ranks = start(store, 2);
  EXPECT_EQ(set_end_reason(store, "rank 1: the disk is full"), "rank 1: the disk is full");
  EXPECT_EQ(set_end_reason(store, "rank 0: lost rank 1"), "rank 1: the disk is full");
  for (auto& rank : ranks) EXPECT_EQ(rank->reason_within(10s), "rank 1: the disk is full");
}

TEST(Heartbeat, AStoreThatGoesIsNoticed) {
  auto server = std::make_unique<Store>(Store::serve(0));
  Store client = Store::connect("127.0.0.1", server->port(), 5s);
  Rank rank(client, 0, 1);
  EXPECT_EQ(rank.reason_within(100ms), "none");
  const std::string address = server->address();
  server.reset();
  EXPECT_THAT(rank.reason_within(10s), HasSubstr("store " + address));
}

TEST(Heartbeat, MissingRanksAreNamed) {
  Store store = Store::in_process();
  store.set("heart/1", "0");
  EXPECT_EQ(error_of([&] { Heartbeat(store, 0, 4, 100ms, kQuick, [](const std::string&) {}); }),
            "of 4 ranks, 2, 3 did not start within 0.1 s");
  set_end_reason(store, "rank 3 was ended by signal 9 (Killed)");
  EXPECT_EQ(error_of([&] { Heartbeat(store, 0, 4, 10s, kQuick, [](const std::string&) {}); }),
            "rank 3 was ended by signal 9 (Killed)");
}

TEST(Store, OverSockets) {
  Store server = Store::serve(0);
  Store client = Store::connect("127.0.0.1", server.port(), 5s).prefixed("run");
  EXPECT_EQ(client.try_get("a"), std::nullopt);
  client.set("a", "1");
  client.set("b", "two words");
  EXPECT_EQ(client.clone().get_all({"a", "b"}), (std::vector<std::string>{"1", "two words"}));
  EXPECT_EQ(server.try_get("a"), std::nullopt);  // the prefix keeps them apart
  EXPECT_EQ(client.set_if_absent("c", "first"), "first");
  EXPECT_EQ(client.set_if_absent("c", "second"), "first");
  EXPECT_EQ(client.add("n", 2) + client.add("n", 3), 7);
  EXPECT_THAT(error_of([&] { Store::connect("127.0.0.1", 1, 300ms); }),
              HasSubstr("store 127.0.0.1:1: "));
}

}  // namespace
}  // namespace muoncore::comm
