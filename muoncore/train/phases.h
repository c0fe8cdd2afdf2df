// Wall time and peak memory of the phases of a step: gen, reward, old_log_prob, ref, adv,
// update_actor, optimizer_step, testing, save_checkpoint.
#pragma once

#include <string>

#include "muoncore/core/memory.h"
#include "muoncore/core/timer.h"
#include "muoncore/train/metrics.h"

namespace muoncore::train {

class PhaseRecorder {
 public:
  explicit PhaseRecorder(const c10::Device& device) : device_(device), memory_(device) {}

  // Ends the phase when destroyed: on a GPU, once all that was launched has run. Phases may nest.
  class Phase {
   public:
    Phase(PhaseRecorder& recorder, std::string name);
    ~Phase() noexcept(false);  // a GPU reports its errors when it is waited for
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    PhaseRecorder& recorder_;
    std::string name_;
    Stopwatch watch_;
  };
  [[nodiscard]] Phase phase(const std::string& name) { return Phase(*this, name); }

  // So far, of one phase; 0 when it was not entered since the last take.
  double seconds(const std::string& name) const { return timings_.seconds(name); }

  // What was recorded since the last call, and forgets it:
  //   timing_s/<phase>; perf/memory/peak_bytes/<phase>; perf/memory/live_bytes/<phase> (at its
  //   end) and perf/memory/live_bytes (now); under verl's names and in GiB,
  //   actor/perf/max_memory_allocated_gb (the largest of the phases) and
  //   actor/perf/cpu_memory_used_gb (the process's peak).
  Metrics take();

  // timing_s/<name> and perf/memory/{peak,live}_bytes/<name> alone; forgets all the same.
  Metrics take_phase(const std::string& name);

 private:
  c10::Device device_;
  Timings timings_;
  PhaseMemory memory_;
};

}  // namespace muoncore::train
