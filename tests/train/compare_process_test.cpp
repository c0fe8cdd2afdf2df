#include "muoncore/train/compare_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "muoncore/core/check.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace muoncore::train {
namespace {

using testing::HasSubstr;

class RunChildren : public testing::Test {
 protected:
  ChildCommand shell(const std::string& name, const std::string& script) const {
    return {.name = name,
            .program = "/bin/sh",
            .arguments = {"-c", script},
            .environment = {},
            .log = folder_ / name};
  }
  std::string error_of(const std::vector<ChildCommand>& commands, int jobs) const {
    return muoncore::error_of([&] { run_children(commands, jobs, [](const auto&) {}); });
  }
  std::string content(const std::string& name) const { return last_lines(folder_ / name, 100); }

  ScratchFolder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
};

TEST_F(RunChildren, OutputAndErrorsGoToTheLogs) {
  run_children({shell("a", "echo out; echo err >&2"), shell("b", "echo other")}, 2,
               [](const auto&) {});
  EXPECT_EQ(content("a"), "out\nerr\n");
  EXPECT_EQ(content("b"), "other\n");
}

TEST_F(RunChildren, EnvironmentIsAddedAndReplaced) {
  setenv("MUONCORE_TEST_OLD", "old", 1);
  ChildCommand command =
      shell("a", "echo $MUONCORE_TEST_OLD $MUONCORE_TEST_NEW; test -n \"$PATH\" && cat");
  command.environment = {{"MUONCORE_TEST_OLD", "replaced"}, {"MUONCORE_TEST_NEW", "new"}};
  run_children({command}, 1, [](const auto&) {});
  EXPECT_EQ(content("a"), "replaced new\n");
}

TEST_F(RunChildren, NeverMoreThanJobsAtATimeInTheirOrder) {
  std::vector<ChildCommand> commands;
  for (int i = 0; i < 5; ++i) commands.push_back(shell(std::to_string(i), "sleep 0.05"));
  size_t most = 0;
  std::vector<ChildStatus> last;
  run_children(commands, 2, [&](const std::vector<ChildStatus>& all) {
    auto running = std::ranges::count(all, ChildState::kRunning, &ChildStatus::state);
    most = std::max(most, static_cast<size_t>(running));
    for (size_t i = 1; i < all.size(); ++i)
      EXPECT_FALSE(all[i].state == ChildState::kRunning &&
                   all[i - 1].state == ChildState::kWaiting);
    last = all;
  });
  EXPECT_EQ(most, 2u);
  ASSERT_EQ(last.size(), 5u);
  for (const ChildStatus& status : last) {
    EXPECT_EQ(status.state, ChildState::kDone);
    EXPECT_GE(status.seconds, 0.05);
  }
}

TEST_F(RunChildren, AFailureNamesTheRunItsLogAndTheLastLines) {
  std::string script =
      "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; done; echo error: the reason; exit 3";
  std::string error = error_of({shell("muon, seed 2", script)}, 1);
  EXPECT_THAT(error, HasSubstr("muon, seed 2 ended with status 3"));
  EXPECT_THAT(error, HasSubstr((folder_ / "muon, seed 2").string()));
  EXPECT_THAT(error, HasSubstr("line 40\nerror: the reason\n"));
  EXPECT_THAT(error, testing::Not(HasSubstr("line 20\n")));
}

TEST_F(RunChildren, AFailureEndsTheOthersAndStartsNoMore) {
  auto start = std::chrono::steady_clock::now();
  std::string error = error_of({shell("long", "echo $$; exec sleep 100"),
                                shell("bad", "sleep 0.2; exit 1"), shell("never", "echo started")},
                               2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  EXPECT_THAT(error, HasSubstr("bad ended with status 1"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "never"));
  pid_t pid = std::stoi(content("long"));
  EXPECT_EQ(kill(pid, 0), -1) << "still running";
}

TEST_F(RunChildren, ASignalIsNamed) {
  EXPECT_THAT(error_of({shell("a", "kill -9 $$")}, 1), HasSubstr("was ended by signal 9 (Killed)"));
}

TEST_F(RunChildren, AProgramThatCannotBeStarted) {
  ChildCommand command = shell("a", "");
  command.program = "/nonexistent/program";
  EXPECT_THAT(error_of({shell("long", "exec sleep 100"), command}, 2),
              HasSubstr("a: /nonexistent/program with log " + (folder_ / "a").string() +
                        " cannot be started"));
  command = shell("a", "");
  command.log = "/nonexistent/folder/log";
  EXPECT_THAT(error_of({command}, 1), HasSubstr("No such file or directory"));
}

TEST_F(RunChildren, AThrowingObserverLeavesNothingRunning) {
  pid_t pid = 0;
  EXPECT_THROW(run_children({shell("long", "echo $$; exec sleep 100")}, 1,
                            [&](const auto&) {
                              if (content("long").empty()) return;
                              pid = std::stoi(content("long"));
                              throw Error("enough");
                            }),
               Error);
  ASSERT_GT(pid, 0);
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(RunChildren, ASignalToUsEndsTheChildrenAndRestoresTheHandler) {
  std::string error;
  std::thread sender([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(getpid(), SIGTERM);
  });
  error = error_of({shell("long", "echo $$; exec sleep 100")}, 1);
  sender.join();
  EXPECT_THAT(error, HasSubstr("stopped by signal 15"));
  EXPECT_EQ(kill(std::stoi(content("long")), 0), -1);
  struct sigaction now = {};
  sigaction(SIGTERM, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST_F(RunChildren, NothingToRun) {
  run_children({}, 2, [](const auto&) {});
}

TEST(LastLines, CountsAndCompletesLines) {
  auto file = std::filesystem::temp_directory_path() / "muoncore_last_lines";
  std::ofstream(file) << "a\nb\nc";
  EXPECT_EQ(last_lines(file, 2), "b\nc\n");
  EXPECT_EQ(last_lines(file, 9), "a\nb\nc\n");
  EXPECT_EQ(last_lines("/nonexistent", 2), "");
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace muoncore::train
