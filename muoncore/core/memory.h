// Memory figures by phase of a training step: what tensors hold (exact, CPU: the counting
// allocator; GPU: torch's caching allocator) and what the process has taken from the system.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace muoncore {

// Bytes that tensors hold on `device` now, and the most they held since the last reset. A GPU's
// figures come from torch's device-independent allocator interface.
int64_t live_bytes(const c10::Device& device);
int64_t peak_bytes(const c10::Device& device);
void reset_peak_bytes(const c10::Device& device);

// The process's peak resident set (VmHWM of /proc/self/status) in bytes; 0 where there is no /proc.
int64_t process_peak_bytes();

// Tells malloc to keep what is freed instead of giving it back to the system. A training step
// allocates and frees the same activations again and again; without this the kernel clears their
// pages anew each time. Does nothing where malloc is not glibc's.
void keep_freed_memory();

// The peak of each phase, and what it left behind. Phases may nest: an inner phase resets the
// device's peak counter, and its peak counts for the phases around it too. Not thread-safe: phases
// are entered by the training thread alone.
class PhaseMemory {
 public:
  explicit PhaseMemory(const c10::Device& device);

  void enter(const std::string& phase);
  void leave();  // ends the innermost phase; throws std::logic_error when there is none

  // Peak bytes of each phase that was left since the last clear(); a phase entered twice keeps the
  // larger.
  const std::map<std::string, int64_t>& peaks() const { return peaks_; }
  // Bytes that tensors held when each of them ended (the last time that it did).
  const std::map<std::string, int64_t>& lives() const { return lives_; }
  void clear() {
    peaks_.clear();
    lives_.clear();
  }

 private:
  struct Open {
    std::string phase;
    int64_t peak = 0;
  };
  c10::Device device_;
  std::vector<Open> open_;
  std::map<std::string, int64_t> peaks_;
  std::map<std::string, int64_t> lives_;
};

}  // namespace muoncore
