// The numbers of one step, under verl's metric names.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace muoncore::train {

// By name, in alphabetical order: every logger writes them in the same order.
using Metrics = std::map<std::string, double>;

// <prefix>/mean, /max and /min of `values`; nothing when there are none.
void add_distribution(Metrics& metrics, const std::string& prefix,
                      const std::vector<double>& values);
void add_distribution(Metrics& metrics, const std::string& prefix,
                      const std::vector<int64_t>& values);

// verl's rule for merging the metrics of several mini-batches into those of a step: a name that
// contains "max" keeps the largest, "min" the smallest, every other one its mean (source: verl
// 0.9.1, utils/metric.reduce_metrics). A name may be missing in some of them.
class MetricMerger {
 public:
  void add(const Metrics& metrics);
  Metrics merged() const;

 private:
  std::map<std::string, std::vector<double>> values_;
};

}  // namespace muoncore::train
