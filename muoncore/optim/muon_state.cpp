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
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG_OPTIONAL(double, ns_eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, upstream_exact);
}

void MuonParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum_buffer);
}

void MuonParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, momentum_buffer);
}

ParamState Muon::param_state(const at::Tensor& param) const {
  auto it = state_.find(param.unsafeGetTensorImpl());
  if (it == state_.end()) return {};
  return {{"momentum_buffer", static_cast<const MuonParamState&>(*it->second).momentum_buffer()}};
}

void Muon::set_param_state(const at::Tensor& param, const ParamState& state) {
  auto it = state.find("momentum_buffer");
  check(it != state.end(), "the state of a Muon parameter lacks momentum_buffer");
  check(state.size() == 1, "the state of a Muon parameter is momentum_buffer alone, got {} entries",
        state.size());
  check_momentum_shape(it->second, param);
  check(it->second.scalar_type() == momentum_dtype(param), "momentum_buffer must be {}, got {}",
        at::toString(momentum_dtype(param)), at::toString(it->second.scalar_type()));
  auto fresh = std::make_unique<MuonParamState>();
  fresh->momentum_buffer(it->second);
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
      at::Tensor& momentum = static_cast<MuonParamState&>(*it->second).momentum_buffer();
      check_momentum_shape(momentum, param);
      momentum = momentum.to(param.device(), momentum_dtype(param));
    }
  }
}

}  // namespace muoncore::optim
