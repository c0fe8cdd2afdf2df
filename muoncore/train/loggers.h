// Where metrics go: `trainer.logger`, any of console, file, tensorboard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "muoncore/train/metrics.h"

namespace muoncore::train {

class MetricLogger {
 public:
  virtual ~MetricLogger() = default;
  // All metrics of one step; steps ascend.
  virtual void log(int64_t step, const Metrics& metrics) = 0;
};

const std::vector<std::string>& logger_names();  // console, file, tensorboard

// console: the line of a step at most once a second (each line that holds a validation, and the
// last step, always), through core/log.h. file: <run_dir>/metrics.jsonl, {"step": N, "data":
// {name: number, ...}}, every number with all digits. tensorboard: <run_dir>/tensorboard. Throws
// Error on another name.
std::vector<std::unique_ptr<MetricLogger>> make_loggers(const std::vector<std::string>& names,
                                                        const std::filesystem::path& run_dir,
                                                        int64_t total_steps);

// "step 12/80  reward 0.412  val acc 0.52  loss -0.01 ...": what the console logger prints; the
// metrics that matter, those that are there.
std::string console_line(int64_t step, int64_t total_steps, const Metrics& metrics);

}  // namespace muoncore::train
