#include "muoncore/optim/managed_optimizer.h"

#include <ATen/core/grad_mode.h>

#include <fmt/ranges.h>

#include <cmath>
#include <set>

#include "muoncore/core/check.h"

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
  std::set<const void*> known;
  for (const auto& held : param_groups_)
    for (const auto& param : held.params()) known.insert(param.unsafeGetTensorImpl());
  for (const auto& param : group.params())
    check(known.insert(param.unsafeGetTensorImpl()).second,
          "a parameter of shape [{}] is given twice: each step would update it twice",
          fmt::join(param.sizes(), ", "));
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
