// Reads a run's metrics.jsonl: one object per line, {"step": N, "data": {name: number, ...}}, as
// the file logger of this project (and verl's) writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace muoncore::train {

struct MetricSeries {
  std::vector<int64_t> steps;  // strictly ascending
  std::vector<double> values;  // finite

  double last() const { return values.back(); }
  double max() const;
  double median() const;
  double mean_of_last(size_t count) const;  // of all when there are fewer
};

class MetricLog {
 public:
  // Throws Error with file and line for: no file, no line at all, a line that is no such object (a
  // cut-off last line too), a value that is no finite number (JSON has no NaN: loggers write null),
  // steps that go back, and one name twice at one step.
  static MetricLog read(const std::filesystem::path& file);
  static MetricLog parse(std::string_view text, const std::filesystem::path& file);

  // Throws Error that names the file, the metric and the nearest name when it never occurs.
  const MetricSeries& series(const std::string& name) const;
  bool has(const std::string& name) const { return series_.contains(name); }

  // Names that begin with `prefix` and end with `suffix`, in alphabetical order. May be empty.
  std::vector<std::string> names(std::string_view prefix, std::string_view suffix = "") const;

  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  std::map<std::string, MetricSeries> series_;
};

}  // namespace muoncore::train
