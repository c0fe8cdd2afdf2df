#include "muoncore/train/loggers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string_view>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/core/log.h"
#include "muoncore/core/timer.h"
#include "muoncore/io/jsonl.h"
#include "muoncore/io/tensorboard.h"

namespace muoncore::train {
namespace {

bool holds_validation(const Metrics& metrics) {
  const auto it = metrics.lower_bound("val");
  return it != metrics.end() && it->first.starts_with("val");
}

class ConsoleLogger final : public MetricLogger {
 public:
  explicit ConsoleLogger(int64_t total_steps) : total_steps_(total_steps) {}

  void log(int64_t step, const Metrics& metrics) override {
    const bool due = !printed_ || since_.seconds() >= 1.0;
    if (!due && !holds_validation(metrics) && step != total_steps_) return;
    log_info("{}", console_line(step, total_steps_, metrics));
    printed_ = true;
    since_ = Stopwatch();
  }

 private:
  int64_t total_steps_;
  bool printed_ = false;
  Stopwatch since_;
};

class FileLogger final : public MetricLogger {
 public:
  explicit FileLogger(const std::filesystem::path& run_dir) : writer_(run_dir / "metrics.jsonl") {}

  void log(int64_t step, const Metrics& metrics) override {
    nlohmann::ordered_json data = nlohmann::ordered_json::object();
    for (const auto& [name, value] : metrics) data[name] = value;
    writer_.write({{"step", step}, {"data", std::move(data)}});
  }

 private:
  io::JsonlWriter writer_;
};

class TensorBoardLogger final : public MetricLogger {
 public:
  explicit TensorBoardLogger(const std::filesystem::path& run_dir)
      : writer_(run_dir / "tensorboard") {}

  void log(int64_t step, const Metrics& metrics) override {
    writer_.add_scalars(step, {metrics.begin(), metrics.end()});
  }

 private:
  io::EventWriter writer_;
};

struct ConsoleColumn {
  std::string_view metric;  // or its beginning, when it ends in '/'
  std::string_view label;
  std::string_view format;
};

constexpr ConsoleColumn kColumns[] = {
    {"critic/rewards/mean", "reward", "{:.4f}"},
    {"train/loss", "loss", "{:.4f}"},
    {"val/loss", "val loss", "{:.4f}"},
    {"val-core/", "accuracy", "{:.4f}"},
    {"actor/pg_loss", "pg_loss", "{:.4f}"},
    {"actor/kl_loss", "kl", "{:.4f}"},
    {"actor/entropy", "entropy", "{:.3f}"},
    {"actor/grad_norm", "grad_norm", "{:.3f}"},
    {"train/grad_norm", "grad_norm", "{:.3f}"},
    {"actor/lr", "lr", "{:.2e}"},
    {"train/lr", "lr", "{:.2e}"},
    {"response_length/mean", "length", "{:.1f}"},
    {"timing_s/gen", "gen", "{:.2f}s"},
    {"timing_s/update_actor", "update", "{:.2f}s"},
    {"timing_s/step", "step", "{:.2f}s"},
};

std::optional<double> find_metric(const Metrics& metrics, std::string_view wanted) {
  const auto it = metrics.lower_bound(std::string(wanted));
  if (it == metrics.end()) return std::nullopt;
  const bool match = wanted.ends_with('/') ? it->first.starts_with(wanted) : it->first == wanted;
  return match ? std::optional(it->second) : std::nullopt;
}

}  // namespace

const std::vector<std::string>& logger_names() {
  static const std::vector<std::string> names = {"console", "file", "tensorboard"};
  return names;
}

std::string console_line(int64_t step, int64_t total_steps, const Metrics& metrics) {
  std::string line = fmt::format("step {}/{}", step, total_steps);
  for (const auto& column : kColumns) {
    const auto value = find_metric(metrics, column.metric);
    if (!value) continue;
    line += fmt::format("  {} {}", column.label, fmt::format(fmt::runtime(column.format), *value));
  }
  return line;
}

std::vector<std::unique_ptr<MetricLogger>> make_loggers(const std::vector<std::string>& names,
                                                        const std::filesystem::path& run_dir,
                                                        int64_t total_steps) {
  std::vector<std::unique_ptr<MetricLogger>> loggers;
  for (const auto& name : names) {
    if (name == "console") {
      loggers.push_back(std::make_unique<ConsoleLogger>(total_steps));
    } else if (name == "file") {
      loggers.push_back(std::make_unique<FileLogger>(run_dir));
    } else if (name == "tensorboard") {
      loggers.push_back(std::make_unique<TensorBoardLogger>(run_dir));
    } else {
      fail("trainer.logger: '{}' is no logger; allowed: {}", name, fmt::join(logger_names(), ", "));
    }
  }
  return loggers;
}

}  // namespace muoncore::train
