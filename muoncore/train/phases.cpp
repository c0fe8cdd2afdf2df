#include "muoncore/train/phases.h"

#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace muoncore::train {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

PhaseRecorder::Phase::Phase(PhaseRecorder& recorder, std::string name)
    : recorder_(recorder), name_(std::move(name)) {
  recorder_.memory_.enter(name_);
}

PhaseRecorder::Phase::~Phase() noexcept(false) {
  const c10::Device& device = recorder_.device_;
  if (!device.is_cpu() && std::uncaught_exceptions() == 0) {
    at::accelerator::synchronizeDevice(device.index());
  }
  recorder_.timings_.add(name_, watch_.seconds());
  recorder_.memory_.leave();
}

Metrics PhaseRecorder::take() {
  Metrics metrics;
  for (const auto& [phase, seconds] : timings_.all()) metrics["timing_s/" + phase] = seconds;
  int64_t peak = live_bytes(device_);
  for (const auto& [phase, bytes] : memory_.peaks()) {
    metrics["perf/memory/peak_bytes/" + phase] = static_cast<double>(bytes);
    peak = std::max(peak, bytes);
  }
  for (const auto& [phase, bytes] : memory_.lives()) {
    metrics["perf/memory/live_bytes/" + phase] = static_cast<double>(bytes);
  }
  metrics["perf/memory/live_bytes"] = static_cast<double>(live_bytes(device_));
  metrics["actor/perf/max_memory_allocated_gb"] = static_cast<double>(peak) / kGiB;
  metrics["actor/perf/cpu_memory_used_gb"] = static_cast<double>(process_peak_bytes()) / kGiB;
  timings_.clear();
  memory_.clear();
  return metrics;
}

Metrics PhaseRecorder::take_phase(const std::string& name) {
  const Metrics all = take();
  Metrics metrics;
  for (const char* prefix : {"timing_s/", "perf/memory/peak_bytes/", "perf/memory/live_bytes/"}) {
    if (const auto it = all.find(prefix + name); it != all.end()) metrics.insert(*it);
  }
  return metrics;
}

}  // namespace muoncore::train
