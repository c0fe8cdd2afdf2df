// Messages for people, on standard error. On a terminal a status line (a progress bar) stays at the
// bottom and messages scroll above it; elsewhere there are only plain lines. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace muoncore {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Messages below `level` are dropped. Default: kInfo.
void set_log_level(LogLevel level);
LogLevel log_level();

// One message; a message of several lines stays together. Warnings and errors carry their level's
// name in front.
void log_message(LogLevel level, std::string_view message);

template <typename... Args>
void log_info(fmt::format_string<Args...> message, Args&&... args) {
  log_message(LogLevel::kInfo, fmt::format(message, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> message, Args&&... args) {
  log_message(LogLevel::kWarning, fmt::format(message, std::forward<Args>(args)...));
}

// From now on every message that is not dropped goes to this file too (flushed after each); an
// empty path: to none. Throws Error where the file cannot be opened.
void set_log_file(const std::filesystem::path& file);
// Off: nothing goes to standard error, the status line neither.
void set_log_console(bool on);

bool log_is_terminal();
// Replaces the status line; "" removes it. Does nothing where standard error is not a terminal.
void set_status_line(std::string text);

// A progress bar in the status line; gone when destroyed.
class ProgressBar {
 public:
  ProgressBar(std::string label, int64_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `done` of total; `seconds` since the start, for the estimate of what is left.
  void update(int64_t done, double seconds);

 private:
  std::string label_;
  int64_t total_;
};

// "GRPO [#####.....]  40/80  50 %, 34.0 s left": the text of a bar, 20 cells wide.
std::string progress_text(std::string_view label, int64_t done, int64_t total, double seconds);

}  // namespace muoncore
