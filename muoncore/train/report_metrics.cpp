#include "muoncore/train/report_metrics.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "muoncore/core/check.h"

namespace muoncore::train {
namespace {

using Json = nlohmann::json;

struct Line {
  int64_t step = 0;
  std::map<std::string, double> data;
};

Line parse_line(std::string_view text, const std::string& where) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  check(json.is_object(), "{}: not a JSON object ({})", where,
        json.is_discarded() ? "cut off or malformed" : json.type_name());
  check(json.contains("step") && json["step"].is_number_integer(), "{}: no integer \"step\"",
        where);
  check(json.contains("data") && json["data"].is_object(), "{}: no object \"data\"", where);
  Line line{.step = json["step"].get<int64_t>(), .data = {}};
  for (const auto& [name, value] : json["data"].items()) {
    check(value.is_number(), "{}: {} is {}, not a finite number", where, name, value.dump());
    double number = value.get<double>();
    check(std::isfinite(number), "{}: {} is {}, not a finite number", where, name, number);
    line.data[name] = number;
  }
  return line;
}

}  // namespace

double MetricSeries::max() const { return std::ranges::max(values); }

double MetricSeries::median() const {
  std::vector<double> sorted = values;
  std::ranges::sort(sorted);
  size_t half = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[half] : 0.5 * (sorted[half - 1] + sorted[half]);
}

double MetricSeries::mean_of_last(size_t count) const {
  count = std::min(count, values.size());
  return std::accumulate(values.end() - static_cast<ptrdiff_t>(count), values.end(), 0.0) /
         static_cast<double>(count);
}

MetricLog MetricLog::read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  check(in.good(), "{}: cannot be opened", file.string());
  std::ostringstream text;
  text << in.rdbuf();
  return parse(text.str(), file);
}

MetricLog MetricLog::parse(std::string_view text, const std::filesystem::path& file) {
  MetricLog log;
  log.file_ = file;
  int64_t number = 0, previous_step = std::numeric_limits<int64_t>::min();
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string where = fmt::format("{}:{}", file.string(), ++number);
    check(end < text.size(), "{}: the last line is cut off (no line end)", where);
    Line line = parse_line(text.substr(0, end), where);
    check(line.step >= previous_step, "{}: step {} comes after step {}", where, line.step,
          previous_step);
    previous_step = line.step;
    for (const auto& [name, value] : line.data) {
      MetricSeries& series = log.series_[name];
      check(series.steps.empty() || series.steps.back() < line.step,
            "{}: {} occurs twice at step {}", where, name, line.step);
      series.steps.push_back(line.step);
      series.values.push_back(value);
    }
    text.remove_prefix(end + 1);
  }
  check(number > 0, "{}: is empty", file.string());
  return log;
}

const MetricSeries& MetricLog::series(const std::string& name) const {
  auto found = series_.find(name);
  if (found != series_.end()) return found->second;
  std::string near = nearest_name(name, names(""));
  fail("{}: has no metric {}{}", file_.string(), name,
       near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

std::vector<std::string> MetricLog::names(std::string_view prefix, std::string_view suffix) const {
  std::vector<std::string> found;
  for (const auto& [name, series] : series_)
    if (name.size() >= prefix.size() + suffix.size() && name.starts_with(prefix) &&
        name.ends_with(suffix))
      found.push_back(name);
  return found;
}

}  // namespace muoncore::train
