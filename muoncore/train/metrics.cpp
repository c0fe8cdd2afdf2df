#include "muoncore/train/metrics.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace muoncore::train {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

void add_distribution(Metrics& metrics, const std::string& prefix,
                      const std::vector<double>& values) {
  if (values.empty()) return;
  metrics[prefix + "/mean"] = mean(values);
  metrics[prefix + "/max"] = *std::max_element(values.begin(), values.end());
  metrics[prefix + "/min"] = *std::min_element(values.begin(), values.end());
}

void add_distribution(Metrics& metrics, const std::string& prefix,
                      const std::vector<int64_t>& values) {
  add_distribution(metrics, prefix, std::vector<double>(values.begin(), values.end()));
}

void MetricMerger::add(const Metrics& metrics) {
  for (const auto& [name, value] : metrics) values_[name].push_back(value);
}

Metrics MetricMerger::merged() const {
  Metrics out;
  for (const auto& [name, values] : values_) {
    if (name.find("max") != std::string::npos) {
      out[name] = *std::max_element(values.begin(), values.end());
    } else if (name.find("min") != std::string::npos) {
      out[name] = *std::min_element(values.begin(), values.end());
    } else {
      out[name] = mean(values);
    }
  }
  return out;
}

}  // namespace muoncore::train
