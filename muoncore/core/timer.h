// Wall-clock timers by name.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace muoncore {

class Stopwatch {
 public:
  Stopwatch() : start_(Clock::now()) {}
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
};

// Seconds by name; adding under one name twice sums.
class Timings {
 public:
  void add(const std::string& name, double seconds) { seconds_[name] += seconds; }
  double seconds(const std::string& name) const;  // 0 when never added
  const std::map<std::string, double>& all() const { return seconds_; }
  void clear() { seconds_.clear(); }

 private:
  std::map<std::string, double> seconds_;
};

// "12.3 s", "4 min 05 s", "2 h 03 min": for people.
std::string format_duration(double seconds);

// "796 032", "3.1 MiB": for people.
std::string format_count(int64_t count);
std::string format_bytes(int64_t bytes);

}  // namespace muoncore
