#include "muoncore/optim/managed_optimizer.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

namespace muoncore::optim {

using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;

double SquareSum::rms() const {
  return count > 0 ? std::sqrt(sum / static_cast<double>(count)) : 0.0;
}

double GroupStats::update_rms() const {
  return elements > 0 ? std::sqrt(update_square_sum / static_cast<double>(elements)) : 0.0;
}

ManagedOptimizer::ManagedOptimizer(const std::vector<OptimizerParamGroup>& groups,
                                   std::unique_ptr<OptimizerOptions> defaults)
    : Optimizer(std::vector<OptimizerParamGroup>{}, std::move(defaults)) {
  for (const auto& group : groups) add_param_group(group);
}

ManagedOptimizer::ManagedOptimizer(std::vector<at::Tensor> params,
                                   std::unique_ptr<OptimizerOptions> defaults)
    : Optimizer(std::move(params), std::move(defaults)) {}

void ManagedOptimizer::add_param_group(const OptimizerParamGroup& group) {
  Optimizer::add_param_group(group);
  if (group.has_options()) param_groups_.back().set_options(group.options().clone());
}

at::Tensor ManagedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    at::AutoGradMode gradients_on(true);
    loss = closure();
  }
  step_with({});
  return loss;
}

}  // namespace muoncore::optim
