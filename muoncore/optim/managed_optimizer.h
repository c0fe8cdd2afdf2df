// The optimizers of this project as real `torch::optim::Optimizer`s, with what a trainer needs
// beside `step()`.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace muoncore::optim {

// A sum of squares and the number of its terms; both add up over ranks.
struct SquareSum {
  double sum = 0.0;
  int64_t count = 0;
  double rms() const;  // sqrt(sum / count); 0 when there is nothing
  bool operator==(const SquareSum&) const = default;
};

// What a step is told from outside. Gradients are never written by an optimizer: the clip
// coefficient comes as an argument and is applied where the gradient is read.
struct StepArgs {
  // every gradient counts as grad * grad_scale; in (0, 1] when it is a clip coefficient
  double grad_scale = 1.0;
  // What observe() returned for this step, added up over all ranks that own parts of the model.
  // Absent: the step observes by itself, and takes its own parameters for all there are.
  std::optional<SquareSum> observed = std::nullopt;
};

// What a step did, summed over one parameter group.
struct GroupStats {
  // logical matrices that were orthogonalized (Newton-Schulz calls); 0 for AdamW
  int64_t matrices = 0;
  int64_t elements = 0;            // elements updated
  double update_square_sum = 0.0;  // sum over elements of (update / lr)^2, weight decay left out
  double factor_sum = 0.0;         // Muon: sum over elements of the extra scale factor
  double update_rms() const;       // sqrt(update_square_sum / elements); 0 when nothing was updated
};

// The state held for one parameter, by its name in checkpoints ("momentum_buffer"; "exp_avg",
// "exp_avg_sq", "step").
using ParamState = std::map<std::string, at::Tensor>;

class ManagedOptimizer : public torch::optim::Optimizer {
 public:
  // The options of each group hold as they were given (torch's base constructor replaces those of
  // optimizers that it does not know by the defaults); a group without options takes the defaults.
  ManagedOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                   std::unique_ptr<torch::optim::OptimizerOptions> defaults);
  ManagedOptimizer(std::vector<at::Tensor> params,
                   std::unique_ptr<torch::optim::OptimizerOptions> defaults);

  // As above for one more group. Throws, and adds nothing, on a parameter that is given twice.
  // Hides torch's, which is not virtual.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  // One step over every parameter that has a gradient. The caller has made sure that all gradients
  // are finite. A gradient may be narrower than its parameter (bf16 on an fp32 master): it is used
  // in the parameter's precision.
  virtual void step_with(const StepArgs& args) = 0;

  // Whether a step depends on a number that is summed over all parameters of the optimizer, on
  // whatever rank they are owned. The same on every rank, also where nothing is owned.
  virtual bool observes() const { return false; }

  // Only where observes(); before step_with, once the gradients are known to be finite, with the
  // same args: takes in this step's gradients and returns this rank's part of the sum. The caller
  // adds the parts of all ranks (an all-reduce of two numbers) and gives the result to step_with as
  // StepArgs::observed. Local.
  virtual SquareSum observe(const StepArgs&) { return {}; }

  // torch's entry: runs the closure if there is one (with gradients on), then step_with({}).
  // Returns its loss.
  at::Tensor step(LossClosure closure = nullptr) override;

  // Bytes of optimizer state now held (momentum, moments; step counters and masters left out).
  virtual int64_t state_bytes() const = 0;

  // The state of one parameter as aliases of what is held (no copies); empty before its first step.
  virtual ParamState param_state(const at::Tensor& param) const = 0;
  // Replaces it. The tensors are taken over, not copied. Throws when a name is missing or unknown,
  // or a tensor is of a wrong shape or dtype, and then changes nothing.
  virtual void set_param_state(const at::Tensor& param, const ParamState& state) = 0;
  // Back to what it was before the parameter's first step.
  void drop_param_state(const at::Tensor& param) { state_.erase(param.unsafeGetTensorImpl()); }

  // Weight decay of one parameter group (torch's options have a virtual for the learning rate
  // only).
  virtual double weight_decay(size_t group) const = 0;
  virtual void set_weight_decay(size_t group, double weight_decay) = 0;

  // Statistics of the last step, one entry per parameter group.
  const std::vector<GroupStats>& last_stats() const { return stats_; }

  // When off, update_square_sum stays 0 and its reductions are not computed.
  void set_measure_update_rms(bool on) { measure_update_rms_ = on; }

 protected:
  std::vector<GroupStats> stats_;
  bool measure_update_rms_ = true;
};

}  // namespace muoncore::optim
