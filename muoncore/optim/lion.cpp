#include "muoncore/optim/lion.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/zeros_like.h>
#include <torch/serialize/archive.h>

#include <fmt/ranges.h>

#include "muoncore/core/check.h"

namespace muoncore::optim {

using torch::optim::OptimizerParamGroup;

namespace {

void check_options(const LionOptions& options) {
  const auto [beta1, beta2] = options.betas();
  auto fits = [](double beta) { return beta >= 0.0 && beta < 1.0; };
  check(options.lr() >= 0.0, "Lion: lr {}: allowed are numbers from 0", options.lr());
  check(fits(beta1) && fits(beta2), "Lion: betas [{}, {}]: allowed are numbers in [0, 1)", beta1,
        beta2);
  check(options.weight_decay() >= 0.0, "Lion: weight_decay {}: allowed are numbers from 0",
        options.weight_decay());
}

void check_param(const at::Tensor& param) {
  const auto dtype = param.scalar_type();
  check(dtype == at::kFloat || dtype == at::kDouble,
        "Lion: a parameter of shape [{}] is {}: allowed are fp32 and fp64 (give bf16 parameters "
        "fp32 masters)",
        fmt::join(param.sizes(), ", "), c10::toString(dtype));
  check(param.is_contiguous(), "Lion: a parameter of shape [{}] is not contiguous",
        fmt::join(param.sizes(), ", "));
}

const LionOptions& options_of(const OptimizerParamGroup& group) {
  return static_cast<const LionOptions&>(group.options());
}

}  // namespace

Lion::Lion(const std::vector<OptimizerParamGroup>& groups, LionOptions defaults)
    : ManagedOptimizer(std::vector<OptimizerParamGroup>{},
                       std::make_unique<LionOptions>(defaults)) {
  check_options(defaults);
  for (const auto& group : groups) add_param_group(group);
}

Lion::Lion(std::vector<at::Tensor> params, LionOptions defaults)
    : Lion({OptimizerParamGroup(std::move(params))}, std::move(defaults)) {}

void Lion::add_param_group(const OptimizerParamGroup& group) {
  if (group.has_options()) check_options(options_of(group));
  for (const auto& param : group.params()) check_param(param);
  ManagedOptimizer::add_param_group(group);
}

void Lion::step_with(const StepArgs& args) {
  at::NoGradGuard no_grad;
  stats_.assign(param_groups_.size(), {});
  for (size_t i = 0; i < param_groups_.size(); ++i) {
    const LionOptions& options = options_of(param_groups_[i]);
    check_options(options);
    for (const auto& param : param_groups_[i].params())
      if (param.grad().defined()) step_param(param, options, args, stats_[i]);
  }
}

LionParamState& Lion::state_of(const at::Tensor& param) {
  auto& slot = state_[param.unsafeGetTensorImpl()];
  if (!slot) {
    auto fresh = std::make_unique<LionParamState>();
    fresh->exp_avg(at::zeros_like(param).detach());
    slot = std::move(fresh);
  }
  return static_cast<LionParamState&>(*slot);
}

void Lion::step_param(const at::Tensor& param, const LionOptions& options, const StepArgs& args,
                      GroupStats& stats) {
  check(!param.grad().is_sparse() && param.grad().numel() == param.numel(),
        "Lion: the gradient of a parameter of shape [{}] is sparse or of another size",
        fmt::join(param.sizes(), ", "));
  at::Tensor grad = param.grad().reshape(param.sizes()).to(param.scalar_type());
  if (args.grad_scale != 1.0) grad = grad.mul(args.grad_scale);
  const auto [beta1, beta2] = options.betas();
  const at::Tensor m = state_of(param).exp_avg();
  const at::Tensor update = at::lerp(m, grad, 1.0 - beta1).sign_();
  if (options.weight_decay() != 0.0) param.mul_(1.0 - options.lr() * options.weight_decay());
  param.add_(update, -options.lr());
  m.lerp_(grad, 1.0 - beta2);
  stats.elements += param.numel();
  if (measure_update_rms_)
    stats.update_square_sum += static_cast<double>(update.count_nonzero().item<int64_t>());
}

int64_t Lion::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, state] : state_)
    bytes += static_cast<int64_t>(static_cast<const LionParamState&>(*state).exp_avg().nbytes());
  return bytes;
}

ParamState Lion::param_state(const at::Tensor& param) const {
  const auto found = state_.find(param.unsafeGetTensorImpl());
  if (found == state_.end()) return {};
  return {{"exp_avg", static_cast<const LionParamState&>(*found->second).exp_avg()}};
}

void Lion::set_param_state(const at::Tensor& param, const ParamState& state) {
  for (const auto& [name, tensor] : state)
    check(name == "exp_avg", "Lion's state has no place for \"{}\"; it holds exp_avg", name);
  const auto found = state.find("exp_avg");
  check(found != state.end(), "Lion's state has no \"exp_avg\"");
  const at::Tensor& tensor = found->second;
  check(tensor.sizes() == param.sizes() && tensor.scalar_type() == param.scalar_type(),
        "Lion's \"exp_avg\" is {} [{}] where {} [{}] is needed",
        c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
        c10::toString(param.scalar_type()), fmt::join(param.sizes(), ", "));
  auto fresh = std::make_unique<LionParamState>();
  fresh->exp_avg(tensor.contiguous());
  state_[param.unsafeGetTensorImpl()] = std::move(fresh);
}

double Lion::weight_decay(size_t group) const {
  return options_of(param_groups_.at(group)).weight_decay();
}

void Lion::set_weight_decay(size_t group, double weight_decay) {
  static_cast<LionOptions&>(param_groups_.at(group).options()).weight_decay(weight_decay);
}

void LionOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
}

void LionOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(betas_t, betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
}

void LionParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(exp_avg);
}

void LionParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, exp_avg);
}

void Lion::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<LionParamState, LionOptions>(archive, *this);
}

void Lion::load(torch::serialize::InputArchive& archive) {
  torch::optim::serialize<LionParamState, LionOptions>(archive, *this);
}

}  // namespace muoncore::optim
