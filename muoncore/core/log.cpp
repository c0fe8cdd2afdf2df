#include "muoncore/core/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <mutex>

#include "muoncore/core/check.h"
#include "muoncore/core/timer.h"

namespace muoncore {
namespace {

std::atomic<LogLevel> threshold{LogLevel::kInfo};

struct Screen {
  std::mutex mutex;
  std::string status;
  std::ofstream file;
  bool console = true;
};

Screen& screen() {
  static Screen instance;
  return instance;
}

constexpr const char* kEraseLine = "\r\033[K";

void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

void set_log_level(LogLevel level) { threshold = level; }
LogLevel log_level() { return threshold; }

bool log_is_terminal() {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  return terminal;
}

void log_message(LogLevel level, std::string_view message) {
  if (level < threshold.load()) return;
  std::string text;
  if (level == LogLevel::kWarning) text = "warning: ";
  if (level == LogLevel::kError) text = "error: ";
  text += message;
  text += '\n';
  Screen& s = screen();
  const std::lock_guard lock(s.mutex);
  if (s.file.is_open()) s.file << text << std::flush;
  if (s.console) write_stderr(s.status.empty() ? text : kEraseLine + text + s.status);
}

void set_log_file(const std::filesystem::path& file) {
  std::ofstream opened;
  if (!file.empty()) {
    opened.open(file, std::ios::app);
    check(opened.good(), "cannot write the log {}", file.string());
  }
  Screen& s = screen();
  const std::lock_guard lock(s.mutex);
  s.file = std::move(opened);
}

void set_log_console(bool on) {
  Screen& s = screen();
  const std::lock_guard lock(s.mutex);
  s.console = on;
}

void set_status_line(std::string text) {
  if (!log_is_terminal() || log_level() > LogLevel::kInfo) return;
  Screen& s = screen();
  const std::lock_guard lock(s.mutex);
  if (!s.console) return;
  s.status = std::move(text);
  write_stderr(kEraseLine + s.status);
}

std::string progress_text(std::string_view label, int64_t done, int64_t total, double seconds) {
  constexpr int64_t kCells = 20;
  const int64_t of = std::max<int64_t>(total, 1);
  const int64_t at = std::clamp<int64_t>(done, 0, of);
  const int64_t full = at * kCells / of;
  std::string text = fmt::format("{} [{}{}] {}/{} {} %", label, std::string(full, '#'),
                                 std::string(kCells - full, '.'), done, total, at * 100 / of);
  if (at > 0 && at < of) {
    const double left = seconds / static_cast<double>(at) * static_cast<double>(of - at);
    text += fmt::format(", {} left", format_duration(left));
  }
  return text;
}

ProgressBar::ProgressBar(std::string label, int64_t total)
    : label_(std::move(label)), total_(total) {}

ProgressBar::~ProgressBar() { set_status_line(""); }

void ProgressBar::update(int64_t done, double seconds) {
  set_status_line(progress_text(label_, done, total_, seconds));
}

}  // namespace muoncore
