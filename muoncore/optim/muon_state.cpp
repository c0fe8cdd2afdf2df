// What Muon keeps between steps: its state by name, and torch's own archive format (torch::save,
// torch::load).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <fmt/ranges.h>
#include <torch/optim/serialize.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/muon/matrix_blocks.h"
#include "muoncore/optim/muon.h"
#include "muoncore/optim/muon_rule.h"
#include "muoncore/optim/muon_update.h"

namespace muoncore::optim {
namespace {

std::string shape_text(const at::Tensor& tensor) {
  return tensor.defined() ? fmt::format("{}", fmt::join(tensor.sizes(), ", ")) : "undefined";
}

void check_shape(const char* name, const at::Tensor& tensor, at::IntArrayRef shape,
                 const at::Tensor& param) {
  check(tensor.defined() && tensor.sizes() == shape,
        "{} of shape [{}] does not fit a parameter of shape [{}]", name, shape_text(tensor),
        shape_text(param));
}

// Those of the shapes that do not depend on the blocks; the rest is checked where it is cut up.
void check_shapes(const MuonParamState& state, const at::Tensor& param, const ParamSpec& spec) {
  check_shape("momentum_buffer", state.momentum_buffer(), param.sizes(), param);
  if (state.step().defined()) check_shape("step", state.step(), {}, param);
  if (!state.shadow_exp_avg().defined()) return;
  std::vector<int64_t> sample = muon_shape(param, spec);
  sample.end()[-2] = static_cast<int64_t>(sampled_rows(sample.end()[-2]).size());
  check_shape("shadow_exp_avg", state.shadow_exp_avg(), sample, param);
  check_shape("shadow_exp_avg_sq", state.shadow_exp_avg_sq(), sample, param);
}

at::ScalarType state_dtype(std::string_view name, const at::Tensor& param, const MuonRule& rule) {
  if (name == "step") return at::kFloat;
  if (name == "momentum_buffer") return muon_compute_dtype(param);
  if (name == "second_moment")
    return muon::second_moment_dtype(rule.moment2, muon_compute_dtype(param));
  return at::kDouble;
}

// A state is all that the options ask for, or it is that of other options: nothing is made up.
void check_names(const std::vector<std::string>& held, const MuonRule& rule) {
  const std::vector<std::string> due = rule.state_names();
  for (const std::string& name : held)
    check(std::find(due.begin(), due.end(), name) != due.end(),
          "with these options the state of a Muon parameter is {}; got {} too",
          fmt::join(due, ", "), name);
  for (const std::string& name : due)
    check(std::find(held.begin(), held.end(), name) != held.end(),
          "with these options the state of a Muon parameter is {}: {} is missing",
          fmt::join(due, ", "), name);
}

template <typename State>
auto tensors_of(State& state) {
  using Slot = std::pair<const char*, decltype(&state.momentum_buffer())>;
  return std::array<Slot, 6>{{{"momentum_buffer", &state.momentum_buffer()},
                              {"second_moment", &state.second_moment()},
                              {"radius", &state.radius()},
                              {"step", &state.step()},
                              {"shadow_exp_avg", &state.shadow_exp_avg()},
                              {"shadow_exp_avg_sq", &state.shadow_exp_avg_sq()}}};
}

std::vector<std::string> held_names(const MuonParamState& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_of(state))
    if (tensor->defined()) names.emplace_back(name);
  return names;
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
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum_kind);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(custom_iteration_mode);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(pre_transform);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(post_transform);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(hyperball);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(align_update_rms);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(adamw_match);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(match_betas);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(match_eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(stochastic_rounding);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(seed);
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
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::string, momentum_kind);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::string, custom_iteration_mode);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::string, pre_transform);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::string, post_transform);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, hyperball);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, align_update_rms);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(std::string, adamw_match);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(betas_t, match_betas);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, match_eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, stochastic_rounding);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(int64_t, seed);
}

void MuonParamState::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum_buffer);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(second_moment);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(radius);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(step);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(shadow_exp_avg);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(shadow_exp_avg_sq);
}

void MuonParamState::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, momentum_buffer);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, second_moment);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, radius);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, step);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, shadow_exp_avg);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(at::Tensor, shadow_exp_avg_sq);
}

const MuonOptions& Muon::options_for(const at::Tensor& param) const {
  for (const auto& group : param_groups_)
    for (const at::Tensor& p : group.params())
      if (p.is_same(param)) return static_cast<const MuonOptions&>(group.options());
  fail("a state was given to a Muon that does not update its parameter of shape [{}]",
       shape_text(param));
}

ParamState Muon::param_state(const at::Tensor& param) const {
  auto it = state_.find(param.unsafeGetTensorImpl());
  if (it == state_.end()) return {};
  ParamState state;
  for (const auto& [name, tensor] : tensors_of(static_cast<const MuonParamState&>(*it->second)))
    if (tensor->defined()) state.emplace(name, *tensor);
  return state;
}

void Muon::set_param_state(const at::Tensor& param, const ParamState& state) {
  std::vector<std::string> held;
  for (const auto& [name, tensor] : state) held.push_back(name);
  const MuonRule rule = resolve_rule(options_for(param));
  check_names(held, rule);
  auto fresh = std::make_unique<MuonParamState>();
  for (const auto& [name, slot] : tensors_of(*fresh)) {
    const auto found = state.find(name);
    if (found == state.end()) continue;
    const at::ScalarType dtype = state_dtype(name, param, rule);
    check(found->second.scalar_type() == dtype, "{} must be {}, got {}", name, at::toString(dtype),
          at::toString(found->second.scalar_type()));
    *slot = found->second;
  }
  check_shapes(*fresh, param, spec_of(param));
  state_[param.unsafeGetTensorImpl()] = std::move(fresh);
}

int64_t Muon::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& entry : state_)
    for (const auto& [name, tensor] : tensors_of(static_cast<const MuonParamState&>(*entry.second)))
      if (tensor->defined() && std::string_view(name) != "step")
        bytes += static_cast<int64_t>(tensor->nbytes());
  return bytes;
}

int64_t planned_state_bytes(const MuonOptions& options, const ParamSpec& spec) {
  const MuonRule rule = resolve_rule(options);
  const auto shape = matrix_shape(spec.shape, spec.flatten);
  int64_t bytes = 4 * c10::multiply_integers(shape);
  if (rule.hyperball) bytes += 8 * muon::count_matrices(shape, spec.blocks);
  if (rule.moment2 != muon::SecondMoment::kNone) {
    const int64_t size =
        c10::elementSize(muon::second_moment_dtype(rule.moment2, at::ScalarType::Float));
    for (const at::Tensor& part : muon::split_blocks(at::empty(shape, at::kMeta), spec.blocks))
      bytes += size * c10::multiply_integers(muon::second_moment_shape(rule.moment2, part.sizes()));
  }
  if (rule.match == AdamWMatch::kMeasured) {
    const int64_t rows = static_cast<int64_t>(sampled_rows(shape[shape.size() - 2]).size());
    const int64_t batch = shape.size() == 3 ? shape[0] : 1;
    bytes += 2 * 8 * batch * rows * shape.back();
  }
  return bytes;
}

void Muon::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<MuonParamState, MuonOptions>(archive, *this);
}

void Muon::load(torch::serialize::InputArchive& archive) {
  at::NoGradGuard no_grad;
  torch::optim::serialize<MuonParamState, MuonOptions>(archive, *this);
  for (const auto& group : param_groups_) {
    const MuonRule rule = resolve_rule(static_cast<const MuonOptions&>(group.options()));
    for (const at::Tensor& param : group.params()) {
      auto it = state_.find(param.unsafeGetTensorImpl());
      if (it == state_.end()) continue;
      auto& state = static_cast<MuonParamState&>(*it->second);
      check_names(held_names(state), rule);
      check_shapes(state, param, spec_of(param));
      for (const auto& [name, tensor] : tensors_of(state)) {
        if (!tensor->defined()) continue;
        const bool counter = std::string_view(name) == "step";
        *tensor = tensor->to(counter ? at::Device(at::kCPU) : param.device(),
                             state_dtype(name, param, rule));
      }
    }
  }
}

}  // namespace muoncore::optim
