#include "muoncore/core/memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "muoncore/core/counting_allocator.h"

namespace muoncore {
namespace {

c10::CachingDeviceAllocator::DeviceStats device_stats(const c10::Device& device) {
  return at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
}

constexpr size_t kAllPools = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

int64_t live_bytes(const c10::Device& device) {
  if (device.is_cpu()) return live_tensor_bytes();
  return device_stats(device).allocated_bytes[kAllPools].current;
}

int64_t peak_bytes(const c10::Device& device) {
  if (device.is_cpu()) return peak_tensor_bytes();
  return device_stats(device).allocated_bytes[kAllPools].peak;
}

void reset_peak_bytes(const c10::Device& device) {
  if (device.is_cpu()) return reset_peak_tensor_bytes();
  at::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

int64_t process_peak_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "VmHWM:") {
      int64_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
  }
  return 0;
}

void keep_freed_memory() {
#ifdef __GLIBC__
  // The largest threshold that glibc accepts; larger blocks are mapped and unmapped as before.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

PhaseMemory::PhaseMemory(const c10::Device& device) : device_(device) {}

void PhaseMemory::enter(const std::string& phase) {
  // What the outer phase reached so far would be lost by the reset.
  if (!open_.empty()) open_.back().peak = std::max(open_.back().peak, peak_bytes(device_));
  reset_peak_bytes(device_);
  open_.push_back({phase, 0});
}

void PhaseMemory::leave() {
  if (open_.empty()) throw std::logic_error("PhaseMemory::leave without a phase");
  const Open done = open_.back();
  open_.pop_back();
  const int64_t peak = std::max(done.peak, peak_bytes(device_));
  int64_t& kept = peaks_[done.phase];
  kept = std::max(kept, peak);
  lives_[done.phase] = live_bytes(device_);
  if (!open_.empty()) open_.back().peak = std::max(open_.back().peak, peak);
}

}  // namespace muoncore
