// What the command loop needs of a trainer, whatever it trains by.
#pragma once

#include <cstdint>

#include "muoncore/data/tokenizer.h"
#include "muoncore/train/metrics.h"
#include "muoncore/train/phases.h"
#include "muoncore/train/setup.h"
#include "muoncore/train/startup_report.h"

namespace muoncore::train {

class Trainer {
 public:
  virtual ~Trainer() = default;

  // Trains step steps_done() + 1 and returns its metrics, timings and memory included.
  virtual Metrics step() = 0;
  // Metrics on held-out data, with timing_s/testing; empty when there is none.
  virtual Metrics validate() = 0;

  virtual int64_t steps_done() const = 0;
  virtual int64_t total_steps() const = 0;

  virtual models::CausalLM& model() = 0;
  virtual const data::Tokenizer& tokenizer() const = 0;
  virtual const optim::ChainedOptimizer& optimizer() const = 0;
  virtual StartupFacts facts() const = 0;  // without the run's folder
};

}  // namespace muoncore::train
