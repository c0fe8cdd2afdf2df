// AdamW (decoupled weight decay) on ATen's fused kernel, for fp32 and fp64 parameters on any
// device.
//
//   p <- p - lr * weight_decay * p;  m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
//   p <- p - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
//
// With `decoupled_weight_decay` off it is Adam: g + weight_decay * p enters the moments in place of
// g, and nothing else shrinks p (torch.optim.Adam; Megatron's decoupled_weight_decay=False).
//
// Source: Loshchilov, Hutter, "Decoupled Weight Decay Regularization", algorithm 2, as in
// torch.optim.AdamW.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/optim/serialize.h>

#include <tuple>
#include <vector>

#include "muoncore/optim/managed_optimizer.h"

namespace muoncore::optim {

struct AdamWOptions : public torch::optim::OptimizerCloneableOptions<AdamWOptions> {
  using betas_t = std::tuple<double, double>;
  AdamWOptions(double lr = 1e-3) : lr_(lr) {}
  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 1e-2;
  TORCH_ARG(bool, decoupled_weight_decay) = true;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr_; }
  void set_lr(const double lr) override { lr_ = lr; }
};

struct AdamWParamState : public torch::optim::OptimizerCloneableParamState<AdamWParamState> {
  TORCH_ARG(at::Tensor, step);        // fp32 scalar, the number of steps taken
  TORCH_ARG(at::Tensor, exp_avg);     // m, shape and dtype of the parameter
  TORCH_ARG(at::Tensor, exp_avg_sq);  // v

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

// Parameters: contiguous fp32 or fp64 leaves. Parameters without a gradient are left alone (no step
// counted).
class AdamW : public ManagedOptimizer {
 public:
  // Throw on options out of range and on parameters of another dtype or not contiguous.
  explicit AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 AdamWOptions defaults = {});
  explicit AdamW(std::vector<at::Tensor> params, AdamWOptions defaults = {});
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  void step_with(const StepArgs& args) override;
  int64_t state_bytes() const override;
  ParamState param_state(const at::Tensor& param) const override;
  void set_param_state(const at::Tensor& param, const ParamState& state) override;
  double weight_decay(size_t group) const override;
  void set_weight_decay(size_t group, double weight_decay) override;

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  AdamWParamState& state_of(const at::Tensor& param);
  void step_param(const at::Tensor& param, const AdamWOptions& options, const StepArgs& args,
                  GroupStats& stats);
};

}  // namespace muoncore::optim
