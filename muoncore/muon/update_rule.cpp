#include "muoncore/muon/update_rule.h"

#include <ATen/ops/lerp.h>

#include "muoncore/core/check.h"
#include "muoncore/muon/words.h"

namespace muoncore::muon {
namespace {

constexpr Words<WeightDecayMethod, 6> kMethods{{{"none", WeightDecayMethod::kNone},
                                                {"decoupled", WeightDecayMethod::kDecoupled},
                                                {"independent", WeightDecayMethod::kIndependent},
                                                {"palm", WeightDecayMethod::kPalm},
                                                {"l2", WeightDecayMethod::kL2},
                                                {"cautious", WeightDecayMethod::kCautious}}};
constexpr Words<MomentumKind, 2> kMomentumKinds{
    {{"ema", MomentumKind::kEma}, {"classical", MomentumKind::kClassical}}};

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
  return parse_word("weight decay method", text, kMethods);
}

MomentumKind parse_momentum_kind(std::string_view text) {
  return parse_word("momentum kind", text, kMomentumKinds);
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

void update_momentum_(const at::Tensor& buffer_, const at::Tensor& grad, double momentum,
                      MomentumKind kind) {
  if (kind == MomentumKind::kEma)
    buffer_.lerp_(grad, 1.0 - momentum);
  else
    buffer_.mul_(momentum).add_(grad);
}

at::Tensor momentum_direction(const at::Tensor& buffer, const at::Tensor& grad, double momentum,
                              bool nesterov, MomentumKind kind) {
  if (!nesterov) return buffer;
  return kind == MomentumKind::kEma ? at::lerp(grad, buffer, momentum) : grad.add(buffer, momentum);
}

}  // namespace muoncore::muon
