#include "muoncore/optim/adamw.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <string>

#include <fmt/ranges.h>

#include "muoncore/core/check.h"
#include "muoncore/optim/chunked_sum.h"

namespace muoncore::optim {

using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;

namespace {

// Elements of the scaled copy of a gradient that exists at one time.
constexpr int64_t kScaleChunk = int64_t{1} << 20;

void check_options(const AdamWOptions& options) {
  const auto [beta1, beta2] = options.betas();
  auto fits = [](double beta) { return beta >= 0.0 && beta < 1.0; };
  check(options.lr() >= 0.0, "AdamW: lr {}: allowed are numbers from 0", options.lr());
  check(fits(beta1) && fits(beta2), "AdamW: betas [{}, {}]: allowed are numbers in [0, 1)", beta1,
        beta2);
  check(options.eps() > 0.0, "AdamW: eps {}: allowed are numbers above 0", options.eps());
  check(options.weight_decay() >= 0.0, "AdamW: weight_decay {}: allowed are numbers from 0",
        options.weight_decay());
}

void check_param(const at::Tensor& param) {
  const auto dtype = param.scalar_type();
  check(dtype == at::kFloat || dtype == at::kDouble,
        "AdamW: a parameter of shape [{}] is {}: allowed are fp32 and fp64 (give bf16 parameters "
        "fp32 masters)",
        fmt::join(param.sizes(), ", "), c10::toString(dtype));
  check(param.is_contiguous(), "AdamW: a parameter of shape [{}] is not contiguous",
        fmt::join(param.sizes(), ", "));
}

const AdamWOptions& options_of(const OptimizerParamGroup& group) {
  return static_cast<const AdamWOptions&>(group.options());
}

// Sum over elements of (update / lr)^2 as the moments now say: (m / c1 / (sqrt(v / c2) + eps))^2.
// By chunks that stay in the cache, with ATen's vectorized roots and quotients.
double update_square_sum(const AdamWParamState& state, const AdamWOptions& options) {
  const at::Tensor m = state.exp_avg().view(-1), v = state.exp_avg_sq().view(-1);
  const double steps = state.step().item<double>();
  const auto [beta1, beta2] = options.betas();
  const double inverse1 = 1.0 / (1.0 - std::pow(beta1, steps));
  const double root2 = std::sqrt(1.0 - std::pow(beta2, steps));
  const double sum = chunked_sum(m.numel(), [&](int64_t begin, int64_t end) {
    at::NoGradGuard no_grad;  // a worker thread has its own mode
    const at::Tensor denominator = at::sqrt(v.slice(0, begin, end));
    // m / (sqrt(v) / root2 + eps) = m root2 / (sqrt(v) + root2 eps)
    const at::Tensor ratio =
        at::div(m.slice(0, begin, end), denominator.add_(root2 * options.eps())).to(at::kCPU);
    double block = 0.0;
    AT_DISPATCH_FLOATING_TYPES(ratio.scalar_type(), "update_square_sum", [&] {
      const auto* u = ratio.const_data_ptr<scalar_t>();
      block = lane_sum(0, ratio.numel(), [&](int64_t k) {
        return static_cast<double>(u[k]) * static_cast<double>(u[k]);
      });
    });
    return block;
  });
  return sum * inverse1 * inverse1 * root2 * root2;
}

}  // namespace

AdamW::AdamW(const std::vector<OptimizerParamGroup>& groups, AdamWOptions defaults)
    : ManagedOptimizer(std::vector<OptimizerParamGroup>{},
                       std::make_unique<AdamWOptions>(defaults)) {
  check_options(defaults);
  for (const auto& group : groups) add_param_group(group);
}

AdamW::AdamW(std::vector<at::Tensor> params, AdamWOptions defaults)
    : AdamW({OptimizerParamGroup(std::move(params))}, std::move(defaults)) {}

void AdamW::add_param_group(const OptimizerParamGroup& group) {
  if (group.has_options()) check_options(options_of(group));
  for (const auto& param : group.params()) check_param(param);
  ManagedOptimizer::add_param_group(group);
}

void AdamW::step_with(const StepArgs& args) {
  at::NoGradGuard no_grad;
  stats_.assign(param_groups_.size(), {});
  for (size_t i = 0; i < param_groups_.size(); ++i) {
    const AdamWOptions& options = options_of(param_groups_[i]);
    for (const auto& param : param_groups_[i].params())
      if (param.grad().defined()) step_param(param, options, args, stats_[i]);
  }
}

AdamWParamState& AdamW::state_of(const at::Tensor& param) {
  auto& slot = state_[param.unsafeGetTensorImpl()];
  if (!slot) {
    auto fresh = std::make_unique<AdamWParamState>();
    fresh->step(at::zeros({}, at::kFloat));
    fresh->exp_avg(at::zeros_like(param));
    fresh->exp_avg_sq(at::zeros_like(param));
    slot = std::move(fresh);
  }
  return static_cast<AdamWParamState&>(*slot);
}

// The kernel is elementwise, and its bytes do not depend on where a tensor is cut, so a gradient
// that has to be scaled or converted passes through a small buffer. (The kernel's own grad_scale
// would write the caller's gradient.)
void AdamW::step_param(const at::Tensor& param, const AdamWOptions& options, const StepArgs& args,
                       GroupStats& stats) {
  const at::Tensor grad = param.grad().reshape(-1);
  check(!param.grad().is_sparse() && grad.numel() == param.numel(),
        "AdamW: the gradient of a parameter of shape [{}] is sparse or of another size",
        fmt::join(param.sizes(), ", "));
  AdamWParamState& state = state_of(param);
  state.step() += 1;
  const at::Tensor step = state.step().to(param.device());
  const at::Tensor p = param.view(-1), m = state.exp_avg().view(-1),
                   v = state.exp_avg_sq().view(-1);
  const bool as_it_is = args.grad_scale == 1.0 && grad.scalar_type() == p.scalar_type();
  const int64_t chunk = as_it_is ? std::max<int64_t>(p.numel(), 1) : kScaleChunk;
  const auto [beta1, beta2] = options.betas();
  for (int64_t at = 0; at < p.numel(); at += chunk) {
    const int64_t length = std::min(chunk, p.numel() - at);
    auto part = [&](const at::Tensor& whole) { return whole.narrow(0, at, length); };
    at::Tensor g = part(grad).to(p.scalar_type());
    if (args.grad_scale != 1.0) g = at::mul(g, args.grad_scale);
    if (options.decoupled_weight_decay())
      at::_fused_adamw_({part(p)}, {g}, {part(m)}, {part(v)}, {}, {step}, options.lr(), beta1,
                        beta2, options.weight_decay(), options.eps(), /*amsgrad=*/false,
                        /*maximize=*/false);
    else
      at::_fused_adam_({part(p)}, {g}, {part(m)}, {part(v)}, {}, {step}, options.lr(), beta1, beta2,
                       options.weight_decay(), options.eps(), /*amsgrad=*/false,
                       /*maximize=*/false);
  }
  stats.elements += p.numel();
  if (measure_update_rms_) stats.update_square_sum += update_square_sum(state, options);
}

int64_t AdamW::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, state] : state_) {
    const auto& moments = static_cast<const AdamWParamState&>(*state);
    bytes += static_cast<int64_t>(moments.exp_avg().nbytes() + moments.exp_avg_sq().nbytes());
  }
  return bytes;
}

ParamState AdamW::param_state(const at::Tensor& param) const {
  const auto found = state_.find(param.unsafeGetTensorImpl());
  if (found == state_.end()) return {};
  const auto& state = static_cast<const AdamWParamState&>(*found->second);
  return {{"step", state.step()}, {"exp_avg", state.exp_avg()}, {"exp_avg_sq", state.exp_avg_sq()}};
}

void AdamW::set_param_state(const at::Tensor& param, const ParamState& state) {
  auto take = [&](const char* name, at::IntArrayRef shape, at::ScalarType dtype) {
    const auto found = state.find(name);
    check(found != state.end(), "AdamW's state has no \"{}\"", name);
    const at::Tensor& tensor = found->second;
    check(tensor.sizes() == shape && tensor.scalar_type() == dtype,
          "AdamW's \"{}\" is {} [{}] where {} [{}] is needed", name,
          c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
          c10::toString(dtype), fmt::join(shape, ", "));
    return tensor.contiguous();
  };
  for (const auto& [name, tensor] : state)
    check(name == "step" || name == "exp_avg" || name == "exp_avg_sq",
          "AdamW's state has no place for \"{}\"; it holds step, exp_avg, exp_avg_sq", name);
  auto fresh = std::make_unique<AdamWParamState>();
  fresh->step(take("step", {}, at::kFloat));
  fresh->exp_avg(take("exp_avg", param.sizes(), param.scalar_type()));
  fresh->exp_avg_sq(take("exp_avg_sq", param.sizes(), param.scalar_type()));
  state_[param.unsafeGetTensorImpl()] = std::move(fresh);
}

double AdamW::weight_decay(size_t group) const {
  return options_of(param_groups_.at(group)).weight_decay();
}

void AdamW::set_weight_decay(size_t group, double weight_decay) {
  static_cast<AdamWOptions&>(param_groups_.at(group).options()).weight_decay(weight_decay);
}

}  // namespace muoncore::optim
