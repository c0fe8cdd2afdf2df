// Ranks as processes: this program starts itself as N ranks, each of which runs one test of the
// suite DISABLED_Rank and leaves a file that says how it ended.
#include "muoncore/comm/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <torch/types.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "muoncore/comm/spawn.h"
#include "muoncore/core/check.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace muoncore::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr const char* kFolder = "MUONCORE_TEST_RANKS";
constexpr int64_t kSpeaker = 1000;  // + rank: the file of the rank that says the error to people

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// ---- in a rank

void leave_word(int64_t rank, const std::string& text) {
  std::ofstream(std::filesystem::path(::getenv(kFolder)) / std::to_string(rank)) << text;
}

// Joins the world, runs `program` and leaves its end as this rank's file.
void rank_main(const std::function<void(World&)>& program) {
  const LaunchEnv env = read_launch_env();
  WorldOptions options;
  options.heartbeat = {50ms, 1000ms};
  options.grace = 1500ms;  // a busy machine needs most of it
  options.last_words = [&](const std::string& reason) { leave_word(env.rank, "hung: " + reason); };
  World world(env, options);
  std::string end = error_of([&] { world.run([&] { program(world); }); });
  leave_word(world.rank(), end);
  if (end == "no error") return;
  if (world.speaks()) leave_word(kSpeaker + world.rank(), end);
  std::_Exit(3);
}

void sum_once(World& world) {
  torch::Tensor t = torch::ones({100'000});
  world.group().all_reduce(t, ReduceOp::kSum, "ones")->wait();
  check(t[99'999].item<float>() == static_cast<float>(world.size()), "wrong sum");
}

void sum_forever(World& world) {
  while (true) sum_once(world);
}

TEST(DISABLED_Rank, Works) {
  rank_main([](World& world) {
    world.agree("the config", 0xfedcba9876543210);
    for (int i = 0; i < 20; ++i) sum_once(world);
  });
}

TEST(DISABLED_Rank, OneIsSlow) {
  rank_main([](World& world) {
    sum_once(world);
    if (world.rank() == 1) std::this_thread::sleep_for(3s);  // three times `dead_after`
    sum_once(world);
    if (world.rank() == 0) std::this_thread::sleep_for(2s);  // the others wait at the end
  });
}

TEST(DISABLED_Rank, OneIsKilled) {
  rank_main([](World& world) {
    sum_once(world);
    if (world.rank() == 1) ::kill(::getpid(), SIGKILL);
    sum_forever(world);
  });
}

TEST(DISABLED_Rank, TheFirstIsKilled) {
  rank_main([](World& world) {
    sum_once(world);
    if (world.rank() == 0) ::kill(::getpid(), SIGKILL);
    sum_forever(world);
  });
}

TEST(DISABLED_Rank, OneFails) {
  rank_main([](World& world) {
    sum_once(world);
    check(world.rank() != 2, "the disk is full");
    sum_forever(world);
  });
}

TEST(DISABLED_Rank, OneIsKilledWhileAnotherHangs) {
  rank_main([](World& world) {
    sum_once(world);
    if (world.rank() == 0) ::kill(::getpid(), SIGKILL);
    while (true) std::this_thread::sleep_for(1s);
  });
}

TEST(DISABLED_Rank, OneStops) {
  rank_main([](World& world) {
    sum_once(world);
    if (world.rank() == 1) ::kill(::getpid(), SIGSTOP);
    sum_forever(world);
  });
}

TEST(DISABLED_Rank, OneIsKilledBeforeItJoins) {
  if (read_launch_env().rank == 1) ::kill(::getpid(), SIGKILL);
  std::string end = error_of([] { rank_main([](World&) {}); });
  leave_word(read_launch_env().rank, end);
  std::_Exit(3);
}

TEST(DISABLED_Rank, Disagrees) {
  rank_main([](World& world) { world.agree("the config", world.rank() == 1 ? 7 : 8); });
}

TEST(DISABLED_Rank, AllAreKilled) { ::kill(::getpid(), SIGKILL); }

TEST(DISABLED_Rank, SleepsForever) {
  leave_word(read_launch_env().rank, std::to_string(::getpid()));
  while (true) std::this_thread::sleep_for(1s);
}

// ---- outside

// Starts n ranks of that test; `ends` are the ranks' files afterwards.
class Launch {
 public:
  Launch(int64_t n, const std::string& test) : n_(n) {
    ::setenv(kFolder, scratch_.path().c_str(), 1);
    auto before = std::chrono::steady_clock::now();
    status_ = spawn_ranks(n, this_program(),
                          {"test_comm", "--gtest_filter=DISABLED_Rank." + test,
                           "--gtest_also_run_disabled_tests", "--gtest_brief=1"},
                          {4s, 1s});
    took_ = std::chrono::steady_clock::now() - before;
  }
  int status() const { return status_; }
  std::string end(int64_t rank) const { return read_file(scratch_.path() / std::to_string(rank)); }
  void expect_ends(const std::string& text, int64_t but) const {
    for (int64_t r = 0; r < n_; ++r) EXPECT_EQ(end(r), r == but ? "" : text) << "rank " << r;
  }
  int64_t speakers() const {
    int64_t count = 0;
    for (int64_t r = 0; r < n_; ++r) count += !end(kSpeaker + r).empty();
    return count;
  }
  std::chrono::duration<double> took() const { return took_; }

 private:
  ScratchFolder scratch_;
  int64_t n_;
  int status_ = 0;
  std::chrono::duration<double> took_{};
};

constexpr int64_t kNone = -1;

TEST(World, RanksAsProcesses) {
  for (int64_t n : {1, 2, 4}) {
    Launch launch(n, "Works");
    EXPECT_EQ(launch.status(), 0);
    launch.expect_ends("no error", kNone);
  }
}

TEST(World, ASlowRankIsNotADeadOne) {
  Launch launch(3, "OneIsSlow");
  EXPECT_EQ(launch.status(), 0);
  launch.expect_ends("no error", kNone);
}

TEST(World, AKilledRankEndsAllWithOneReason) {
  Launch launch(4, "OneIsKilled");
  EXPECT_EQ(launch.status(), 128 + SIGKILL);
  launch.expect_ends("rank 1 was ended by signal 9 (Killed)", 1);
  EXPECT_EQ(launch.speakers(), 1);
  EXPECT_LT(launch.took().count(), 30);
}

TEST(World, SoDoesTheFirstRank) {
  Launch launch(2, "TheFirstIsKilled");
  EXPECT_EQ(launch.status(), 128 + SIGKILL);
  launch.expect_ends("rank 0 was ended by signal 9 (Killed)", 0);
  EXPECT_EQ(launch.speakers(), 1);
}

TEST(World, AFailingRankEndsAllWithItsReason) {
  Launch launch(3, "OneFails");
  EXPECT_EQ(launch.status(), 3);
  launch.expect_ends("rank 2: the disk is full", kNone);
  EXPECT_EQ(launch.speakers(), 1);
}

TEST(World, ARankThatHangsIsEndedAfterItsLastWords) {
  Launch launch(2, "OneIsKilledWhileAnotherHangs");
  EXPECT_EQ(launch.status(), 128 + SIGKILL);
  EXPECT_EQ(launch.end(0), "");
  EXPECT_EQ(launch.end(1), "hung: rank 0 was ended by signal 9 (Killed)");
}

TEST(World, AStoppedRankIsFoundByItsHeart) {
  Launch launch(3, "OneStops");
  EXPECT_NE(launch.status(), 0);
  for (int64_t r : {0, 2})
    EXPECT_THAT(launch.end(r), HasSubstr("rank 1 gave no sign of life for 1 s"));
  EXPECT_EQ(launch.end(0), launch.end(2));
  EXPECT_LT(launch.took().count(), 30);
}

TEST(World, ARankThatDiesBeforeItJoins) {
  Launch launch(3, "OneIsKilledBeforeItJoins");
  EXPECT_EQ(launch.status(), 128 + SIGKILL);
  launch.expect_ends("rank 1 was ended by signal 9 (Killed)", 1);
}

TEST(World, RanksThatDisagreeAreNamed) {
  Launch launch(3, "Disagrees");
  EXPECT_EQ(launch.status(), 3);
  for (int64_t r = 0; r < 3; ++r)
    EXPECT_THAT(launch.end(r),
                HasSubstr("the config is not the same on all ranks: rank 1 differs from rank 0"));
}

TEST(World, OfOneNeedsNothing) {
  World world(LaunchEnv{}, {});
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.group().size(), 1);
  world.agree("the config", 5);
  world.run([] {});
  EXPECT_EQ(error_of([&] { world.run([] { fail("its own words"); }); }), "its own words");
}

// Variables set by hand: rank 0 serves the store, and leaves last.
TEST(World, WithoutALauncherThatServesTheStore) {
  LaunchEnv env;
  env.launched = true;
  env.world_size = env.local_world_size = 3;
  env.master_addr = "127.0.0.1";
  env.master_port = Store::serve(0).port();
  env.run_id = "none/0";
  std::vector<std::thread> ranks;
  for (int64_t r = 0; r < 3; ++r)
    ranks.emplace_back([env, r]() mutable {
      env.rank = env.local_rank = r;
      World world(env, {});
      EXPECT_EQ(error_of([&] { world.run([&] { sum_once(world); }); }), "no error");
    });
  for (std::thread& rank : ranks) rank.join();
}

// A signal to the launcher reaches the ranks, and its status says so.
TEST(Spawn, PassesSignalsOn) {
  std::thread killer([parent = ::getpid()] {
    std::this_thread::sleep_for(500ms);
    ::kill(parent, SIGTERM);
  });
  Launch launch(2, "SleepsForever");
  killer.join();
  EXPECT_EQ(launch.status(), 128 + SIGTERM);
}

TEST(Spawn, SpeaksForRanksThatCannot) {
  EXPECT_THAT(error_of([] { Launch(2, "AllAreKilled"); }),
              ::testing::MatchesRegex("rank [01] was ended by signal 9 .Killed.; so were all other "
                                      "ranks, none is left to say more"));
}

TEST(Spawn, Refusals) {
  EXPECT_THAT(error_of([] { spawn_ranks(0, this_program(), {"x"}); }),
              HasSubstr("0 ranks; at least 1 is needed"));
  EXPECT_THAT(error_of([] { spawn_ranks(1, "/no/such", {"x"}); }),
              HasSubstr("/no/such cannot be run: No such file or directory"));
}

}  // namespace
}  // namespace muoncore::comm
