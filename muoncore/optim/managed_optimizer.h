// The optimizers of this project as real `torch::optim::Optimizer`s, with what a trainer needs beside `step()`.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>

namespace muoncore::optim {

// What a step is told from outside. Gradients are never written by an optimizer: the clip coefficient comes as an
// argument and is applied where the gradient is read.
struct StepArgs {
  double grad_scale = 1.0;  // every gradient counts as grad * grad_scale; in (0, 1] when it is a clip coefficient
};

// What a step did, summed over one parameter group.
struct GroupStats {
  int64_t matrices = 0;             // logical matrices that were orthogonalized (Newton-Schulz calls); 0 for AdamW
  int64_t elements = 0;             // elements updated
  double update_square_sum = 0.0;   // sum over elements of (update / lr)^2, weight decay left out
  double update_rms() const;        // sqrt(update_square_sum / elements); 0 when nothing was updated
};

class ManagedOptimizer : public torch::optim::Optimizer {
 public:
  using torch::optim::Optimizer::Optimizer;

  // One step over every parameter that has a gradient. The caller has made sure that all gradients are finite.
  virtual void step_with(const StepArgs& args) = 0;

  // torch's entry: runs the closure if there is one (with gradients on), then step_with({}). Returns its loss.
  at::Tensor step(LossClosure closure = nullptr) override;

  // Bytes of optimizer state now held (momentum, moments; step counters and masters left out).
  virtual int64_t state_bytes() const = 0;

  // Statistics of the last step, one entry per parameter group.
  const std::vector<GroupStats>& last_stats() const { return stats_; }

  // When off, update_square_sum stays 0 and its reductions are not computed.
  void set_measure_update_rms(bool on) { measure_update_rms_ = on; }

 protected:
  std::vector<GroupStats> stats_;
  bool measure_update_rms_ = true;
};

}  // namespace muoncore::optim
