// What both trainers are made of, and what the command loop needs of them: model, optimizer,
// schedule, clocks, the count of steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "muoncore/data/tokenizer.h"
#include "muoncore/optim/param_scheduler.h"
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

  models::CausalLM& model() { return *setup_.model; }
  const data::Tokenizer& tokenizer() const { return *setup_.tokenizer; }
  const optim::ChainedOptimizer& optimizer() const { return *optimizer_; }
  StartupFacts facts() const;  // without the run's folder

 protected:
  // Threads, device, model and tokenizer; touches no run folder. Throws Error.
  explicit Trainer(const Config& config);
  // Once the number of training examples is known: steps, optimizer and schedule.
  void set_up_steps(const Config& config, int64_t examples, bool measure_update_rms);

  virtual Metrics held_out() = 0;           // metrics of validate()
  virtual bool with_reference() const = 0;  // a frozen copy of the model is held
  Trainee trainee() { return {*setup_.model, *optimizer_, *scheduler_}; }
  // Counts one step of `batch` examples and `tokens` tokens as done, and adds its timings, memory,
  // throughput, training/global_step and training/epoch.
  void finish_step(int64_t batch, int64_t tokens, Metrics& metrics);

  ModelSetup setup_;
  PhaseRecorder recorder_;

 private:
  int64_t examples_ = 0;  // of one epoch
  int64_t total_steps_ = 0;
  int64_t steps_done_ = 0;
  std::unique_ptr<optim::ChainedOptimizer> optimizer_;
  std::unique_ptr<optim::OptimizerParamScheduler> scheduler_;
};

}  // namespace muoncore::train
