// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675, algorithm
// 2), with decoupled weight decay, as in Emerging-Optimizers' Lion. Each step:
//
//   p <- p - lr * weight_decay * p
//   p <- p - lr * sign(beta1 m + (1 - beta1) g);  m <- beta2 m + (1 - beta2) g
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/optim/serialize.h>

#include <tuple>
#include <vector>

#include "muoncore/optim/managed_optimizer.h"

namespace muoncore::optim {

// Defaults: Megatron's lion_beta1 and lion_beta2.
struct LionOptions : public torch::optim::OptimizerCloneableOptions<LionOptions> {
  using betas_t = std::tuple<double, double>;
  LionOptions(double lr = 1e-4) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as torch's own
  TORCH_ARG(double, lr) = 1e-4;
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.95, 0.98);
  TORCH_ARG(double, weight_decay) = 1e-2;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override { return lr_; }
  void set_lr(const double lr) override { lr_ = lr; }
};

struct LionParamState : public torch::optim::OptimizerCloneableParamState<LionParamState> {
  TORCH_ARG(at::Tensor, exp_avg);  // m, shape and dtype of the parameter

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

// Parameters: contiguous fp32 or fp64 leaves. Parameters without a gradient are left alone.
class Lion : public ManagedOptimizer {
 public:
  // Throw on options out of range and on parameters of another dtype or not contiguous.
  explicit Lion(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                LionOptions defaults = {});
  explicit Lion(std::vector<at::Tensor> params, LionOptions defaults = {});
  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  void step_with(const StepArgs& args) override;
  int64_t state_bytes() const override;
  ParamState param_state(const at::Tensor& param) const override;  // "exp_avg"
  void set_param_state(const at::Tensor& param, const ParamState& state) override;
  double weight_decay(size_t group) const override;
  void set_weight_decay(size_t group, double weight_decay) override;

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  LionParamState& state_of(const at::Tensor& param);
  void step_param(const at::Tensor& param, const LionOptions& options, const StepArgs& args,
                  GroupStats& stats);
};

}  // namespace muoncore::optim
