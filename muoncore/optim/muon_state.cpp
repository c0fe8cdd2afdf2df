// What Muon keeps between steps: its state by name, and torch's own archive format (torch::save,
// torch::load).
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <torch/optim/serialize.h>

#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/optim/muon.h"

namespace muoncore::optim {
namespace {

at::ScalarType momentum_dtype(const at::Tensor& param) {
  return param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void check_momentum_shape(const at::Tensor& momentum, const at::Tensor& param) {
  check(
      momentum.defined() && momentum.sizes() == param.sizes(),
      "momentum_buffer of shape [{}] does not fit a parameter of shape [{}]",
      momentum.defined() ? fmt::format("{}", fmt::join(momentum.sizes().vec(), ", ")) : "undefined",
      fmt::join(param.sizes().vec(), ", "));
}

}  // namespace

MuonOptions::MuonOptions(double lr) : lr_(lr) {}
double MuonOptions::get_lr() const { return lr(); }
void MuonOptions::set_lr(const double lr) { this->lr(lr); }

void MuonOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(nesterov);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay_method);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(coefficient_type);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(custom_coefficients);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(num_ns_steps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(fp32_matmul_prec);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(scale_mode);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(extra_scale_factor);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(moment2_method);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(beta2);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(moment2_eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(ns_eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(upstream_exact);
}

void MuonOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, momentum);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, nesterov);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::string, weight_decay_method);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::string, coefficient_type);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::vector<double>, custom_coefficients);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(int64_t, num_ns_steps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::string, fp32_matmul_prec);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::string, scale_mode);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, extra_scale_factor);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::string, moment2_method);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, beta2);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, moment2_eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG_OPTIONAL(double, ns_eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, upstream_exact);
}

void MuonParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum_buffer);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(second_moment);
}

void MuonParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, momentum_buffer);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, second_moment);
}

ParamState Muon::param_state(const at::Tensor& param) const {
  auto it = state_.find(param.unsafeGetTensorImpl());
  if (it == state_.end()) return {};
  const auto& held = static_cast<const MuonParamState&>(*it->second);
  ParamState state{{"momentum_buffer", held.momentum_buffer()}};
  if (held.second_moment().defined()) state.emplace("second_moment", held.second_moment());
  return state;
}

void Muon::set_param_state(const at::Tensor& param, const ParamState& state) {
  auto fresh = std::make_unique<MuonParamState>();
  for (const auto& [name, tensor] : state) {
    check(name == "momentum_buffer" || name == "second_moment",
          "the state of a Muon parameter is momentum_buffer and second_moment, got {}", name);
    check(tensor.scalar_type() == momentum_dtype(param), "{} must be {}, got {}", name,
          at::toString(momentum_dtype(param)), at::toString(tensor.scalar_type()));
    name == "momentum_buffer" ? fresh->momentum_buffer(tensor) : fresh->second_moment(tensor);
  }
  check(fresh->momentum_buffer().defined(), "the state of a Muon parameter lacks momentum_buffer");
  check_momentum_shape(fresh->momentum_buffer(), param);
  state_[param.unsafeGetTensorImpl()] = std::move(fresh);
}

void Muon::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<MuonParamState, MuonOptions>(archive, *this);
}

void Muon::load(torch::serialize::InputArchive& archive) {
  at::NoGradGuard no_grad;
  torch::optim::serialize<MuonParamState, MuonOptions>(archive, *this);
  for (const auto& group : param_groups_) {
    check_options(static_cast<const MuonOptions&>(group.options()));
    for (const at::Tensor& param : group.params()) {
      auto it = state_.find(param.unsafeGetTensorImpl());
      if (it == state_.end()) continue;
      auto& state = static_cast<MuonParamState&>(*it->second);
      check_momentum_shape(state.momentum_buffer(), param);
      for (at::Tensor* tensor : {&state.momentum_buffer(), &state.second_moment()})
        if (tensor->defined()) *tensor = tensor->to(param.device(), momentum_dtype(param));
    }
  }
}

}  // namespace muoncore::optim
