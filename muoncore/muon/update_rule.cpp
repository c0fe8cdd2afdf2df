#include "muoncore/muon/update_rule.h"

#include <ATen/ops/lerp.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "muoncore/core/check.h"

namespace muoncore::muon {
namespace {

constexpr std::array<std::pair<const char*, WeightDecayMethod>, 6> kMethods{
    {{"none", WeightDecayMethod::kNone},
     {"decoupled", WeightDecayMethod::kDecoupled},
     {"independent", WeightDecayMethod::kIndependent},
     {"palm", WeightDecayMethod::kPalm},
     {"l2", WeightDecayMethod::kL2},
     {"cautious", WeightDecayMethod::kCautious}}};

double decay_rate(WeightDecayMethod method, double weight_decay, double lr) {
  switch (method) {
    case WeightDecayMethod::kDecoupled:
      return weight_decay * lr;
    case WeightDecayMethod::kIndependent:
      return weight_decay;
    case WeightDecayMethod::kPalm:
      return weight_decay * lr * lr;
    case WeightDecayMethod::kNone:
    case WeightDecayMethod::kCautious:
    case WeightDecayMethod::kL2:
      return 0.0;
  }
  fail("weight decay method {} does not exist", static_cast<int>(method));
}

}  // namespace

WeightDecayMethod parse_weight_decay_method(std::string_view text) {
  std::vector<std::string> names;
  for (const auto& [name, method] : kMethods) {
    if (text == name) return method;
    names.emplace_back(name);
  }
  std::string near = nearest_name(text, names);
  fail("weight decay method '{}' is not one of {}{}", text, fmt::join(names, ", "),
       near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

void apply_weight_decay_(const at::Tensor& param_, WeightDecayMethod method, double weight_decay,
                         double lr) {
  const double rate = decay_rate(method, weight_decay, lr);
  if (rate != 0) param_.add_(param_, -rate);
}

void apply_cautious_decay_(const at::Tensor& param_, const at::Tensor& update, double weight_decay,
                           double lr) {
  at::Tensor agree = update.mul(param_).ge(0);
  param_.sub_(param_.mul(agree).mul_(weight_decay * lr));
}

at::Tensor effective_gradient(const at::Tensor& grad, double grad_scale, const at::Tensor& param,
                              WeightDecayMethod method, double weight_decay, at::ScalarType dtype) {
  at::Tensor g = grad.to(dtype);
  if (grad_scale != 1.0) g = g.mul(grad_scale);
  if (method == WeightDecayMethod::kL2 && weight_decay != 0) g = g.add(param, weight_decay);
  return g;
}

void update_momentum_(const at::Tensor& buffer_, const at::Tensor& grad, double momentum) {
  buffer_.lerp_(grad, 1.0 - momentum);
}

at::Tensor momentum_direction(const at::Tensor& buffer, const at::Tensor& grad, double momentum,
                              bool nesterov) {
  return nesterov ? at::lerp(grad, buffer, momentum) : buffer;
}

}  // namespace muoncore::muon
