#include "muoncore/core/log.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "muoncore/core/timer.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace muoncore {
namespace {

TEST(LogTest, LevelsAndPrefixes) {
  ::testing::internal::CaptureStderr();
  log_message(LogLevel::kDebug, "unseen");
  log_info("step {}", 3);
  log_warning("careful");
  set_log_level(LogLevel::kError);
  log_warning("unseen");
  set_log_level(LogLevel::kInfo);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "step 3\nwarning: careful\n");
}

TEST(LogTest, AFileGetsEveryMessageAlsoWithoutTheConsole) {
  const ScratchFolder scratch;
  const auto file = scratch.path() / "rank_1.log";
  ::testing::internal::CaptureStderr();
  set_log_file(file);
  log_info("both");
  set_log_console(false);
  log_warning("file alone");
  set_log_file("");
  log_info("nowhere");
  set_log_console(true);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "both\n");
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_EQ(text.str(), "both\nwarning: file alone\n");
  EXPECT_EQ(error_of([&] { set_log_file(scratch.path() / "none" / "log"); }),
            "cannot write the log " + (scratch.path() / "none" / "log").string());
}

TEST(LogTest, ProgressText) {
  EXPECT_EQ(progress_text("GRPO", 40, 80, 34.0),
            "GRPO [##########..........] 40/80 50 %, 34.0 s left");
  EXPECT_EQ(progress_text("SFT", 0, 400, 1.0), "SFT [....................] 0/400 0 %");
  EXPECT_EQ(progress_text("SFT", 400, 400, 1.0), "SFT [####################] 400/400 100 %");
  EXPECT_EQ(progress_text("x", 5, 0, 1.0), "x [####################] 5/0 100 %");
}

TEST(FormatTest, Durations) {
  EXPECT_EQ(format_duration(0.04), "0.0 s");
  EXPECT_EQ(format_duration(99.94), "99.9 s");
  EXPECT_EQ(format_duration(99.96), "1 min 40 s");
  EXPECT_EQ(format_duration(3599.4), "59 min 59 s");
  EXPECT_EQ(format_duration(7384), "2 h 03 min");
}

TEST(FormatTest, CountsAndBytes) {
  EXPECT_EQ(format_count(796032), "796 032");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(-1234567), "-1 234 567");
  EXPECT_EQ(format_bytes(1023), "1023 bytes");
  EXPECT_EQ(format_bytes(3222528), "3.1 MiB");
}

TEST(TimingsTest, SumsUnderOneName) {
  Timings t;
  t.add("gen", 1.5);
  t.add("gen", 0.25);
  EXPECT_EQ(t.seconds("gen"), 1.75);
  EXPECT_EQ(t.seconds("none"), 0.0);
  t.clear();
  EXPECT_TRUE(t.all().empty());
}

}  // namespace
}  // namespace muoncore
