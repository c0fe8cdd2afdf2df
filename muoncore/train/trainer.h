// What both trainers are made of, and what the command loop needs of them: model, optimizer,
// schedule, clocks, the count of steps.
#pragma once

#include <cstdint>
#include <string>

#include "muoncore/data/tokenizer.h"
#include "muoncore/train/metrics.h"
#include "muoncore/train/phases.h"
#include "muoncore/train/setup.h"
#include "muoncore/train/startup_report.h"
#include "muoncore/train/update_actor.h"

namespace muoncore::train {

class Trainer {
 private:
  std::string command_;
  int threads_;
  const Ranks& ranks_;
  c10::Device device_;

 public:
  virtual ~Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains step steps_done() + 1 and returns its metrics, timings and memory included.
  virtual Metrics step() = 0;
  // Metrics on held-out data, with timing_s/testing and the memory of that phase; empty when there
  // is none.
  Metrics validate();

  int64_t steps_done() const { return steps_done_; }
  int64_t total_steps() const { return total_steps_; }

  const Ranks& ranks() const { return ranks_; }
  models::CausalLM& model();  // with all parameters complete
  const data::Tokenizer& tokenizer() const { return *setup_.tokenizer; }
  const parallel::WrappedModel& wrapped() const { return optimizer_.wrapped; }
  StartupFacts facts() const;  // without the run's folder

 protected:
  // Threads, device, model and tokenizer; touches no run folder. ranks must outlive it. Throws
  // Error.
  Trainer(const Config& config, const Ranks& ranks);
  // Once the number of training examples is known: steps, optimizer and schedule. Collective.
  void set_up_steps(const Config& config, int64_t examples, bool measure_update_rms);

  virtual Metrics held_out() = 0;           // metrics of validate()
  virtual bool with_reference() const = 0;  // a frozen copy of the model is held
  Trainee trainee() { return trainee_of(*setup_.model, optimizer_, ranks_); }
  // Counts one step of `batch` examples and `tokens` tokens (of all ranks) as done, and adds its
  // timings, memory, throughput (per rank, as verl's), training/global_step and training/epoch.
  // With several ranks times and bytes are those of the rank with most; <name>/rank_mean is added
  // where it shows how evenly they share the work.
  void finish_step(int64_t batch, int64_t tokens, Metrics& metrics);

  ModelSetup setup_;
  PhaseRecorder recorder_;

 private:
  int64_t examples_ = 0;  // of one epoch
  int64_t total_steps_ = 0;
  int64_t steps_done_ = 0;
  OptimizerSetup optimizer_;
};

}  // namespace muoncore::train
