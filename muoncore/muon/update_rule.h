// The stages of Muon's update around the orthogonalization, one place each. All tensors of one call
// share shape and dtype (fp32 or fp64); what ends in `_` is written in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace muoncore::muon {

// Applied before the momentum, on the base learning rate. Source: Emerging-Optimizers
// WeightDecayMixin.
enum class WeightDecayMethod {
  kNone,
  kDecoupled,    // p -= wd lr p
  kIndependent,  // p -= wd p
  kPalm,         // p -= wd lr^2 p
  kL2,           // gradient + wd p
  kCautious,     // p -= wd lr p where update * p >= 0, that is where decay and update agree
};
WeightDecayMethod parse_weight_decay_method(std::string_view text);  // throws, naming the words

// param_ is multiplied by 1 - rate; nothing for kNone, kL2 and kCautious.
void apply_weight_decay_(const at::Tensor& param_, WeightDecayMethod method, double weight_decay,
                         double lr);

// Before `update` is subtracted: kCautious's decay. Source: cautious weight decay as in
// modded-nanogpt's NorMuon.
void apply_cautious_decay_(const at::Tensor& param_, const at::Tensor& update, double weight_decay,
                           double lr);

// The gradient as momentum sees it: grad * grad_scale (the clip coefficient), plus wd * param under
// kL2, in `dtype`. grad itself, without a copy, where nothing is to be done; never writes it.
at::Tensor effective_gradient(const at::Tensor& grad, double grad_scale, const at::Tensor& param,
                              WeightDecayMethod method, double weight_decay, at::ScalarType dtype);

// From zero, the classical buffer and direction are those of the EMA divided by 1 - momentum: the
// same direction for Newton-Schulz. What tells them apart is the size in checkpoints, an absolute
// eps, and a momentum that changes during a run.
enum class MomentumKind {
  kEma,        // M <- lerp(M, g, 1 - mu); Nesterov: U = lerp(g, M, mu). Emerging-Optimizers, torch
  kClassical,  // M <- mu M + g;           Nesterov: U = g + mu M. Keller Jordan 2024, Moonlight
};
MomentumKind parse_momentum_kind(std::string_view text);  // ema, classical; throws, naming them

// The EMA in the two-branch form of ATen's lerp, which is exact at both ends.
void update_momentum_(const at::Tensor& buffer_, const at::Tensor& grad, double momentum,
                      MomentumKind kind = MomentumKind::kEma);

// What is orthogonalized, of the buffer after its update: U as above with Nesterov (a new tensor),
// else the buffer itself (read only).
at::Tensor momentum_direction(const at::Tensor& buffer, const at::Tensor& grad, double momentum,
                              bool nesterov, MomentumKind kind = MomentumKind::kEma);

}  // namespace muoncore::muon
