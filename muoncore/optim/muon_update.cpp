#include "muoncore/optim/muon_update.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <cmath>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"
#include "muoncore/muon/hyperball.h"
#include "muoncore/muon/matrix_blocks.h"
#include "muoncore/muon/rounding.h"

namespace muoncore::optim {
namespace {

using muon::SecondMoment;

// A state that holds something of each logical matrix, flat, one after another: the shape of each
// is that of `method`'s second moment. (Hyperball's radius is one number, as namo's.)
int64_t flat_size(const std::vector<MuonPart>& parts, SecondMoment method) {
  int64_t count = 0;
  for (const MuonPart& part : parts)
    count += c10::multiply_integers(muon::second_moment_shape(method, part.direction.sizes()));
  return count;
}

std::vector<at::Tensor> flat_slices(const at::Tensor& flat, const std::vector<MuonPart>& parts,
                                    SecondMoment method, const char* name) {
  const int64_t due = flat_size(parts, method);
  check(flat.numel() == due, "{} holds {} elements, but {} are needed", name, flat.numel(), due);
  std::vector<at::Tensor> out;
  int64_t start = 0;
  for (const MuonPart& part : parts) {
    const auto shape = muon::second_moment_shape(method, part.direction.sizes());
    const int64_t count = c10::multiply_integers(shape);
    out.push_back(flat.narrow(0, start, count).view(shape));
    start += count;
  }
  return out;
}

std::vector<at::Tensor> radii(const PendingUpdate& p) {
  return flat_slices(p.state->radius(), p.parts, SecondMoment::kNamo, "radius");
}

// The norms that the logical matrices start with.
void ensure_radius(const PendingUpdate& p) {
  if (p.state->radius().defined()) return;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& part : muon::split_blocks(p.weights.reshape(p.shape), p.spec->blocks))
    norms.push_back(muon::matrix_norm(part).flatten());
  at::Tensor radius = at::cat(norms).detach();
  check(radius.gt(muon::kHyperballEps).all().item<bool>(),
        "{}: hyperball keeps every matrix at the norm that it starts with, and one starts at zero",
        p.spec->name.empty() ? "a parameter of Muon" : p.spec->name);
  p.state->radius(radius);
}

double step_factor(const MuonRule& rule, const MuonParamState& state,
                   const std::optional<SquareSum>& observed) {
  switch (rule.match) {
    case AdamWMatch::kNone:
      return rule.extra_scale_factor;
    case AdamWMatch::kBiasCorrected:
      return rule.extra_scale_factor *
             muon::adamw_rms_match_scale_factor_at(rule.shadow.beta1, state.step().item<int64_t>());
    case AdamWMatch::kMeasured:
      return rule.extra_scale_factor * observed.value().rms();
  }
  fail("AdamW match {} does not exist", static_cast<int>(rule.match));
}

void apply_second_moment(std::vector<at::Tensor>& updates, const PendingUpdate& p,
                         const MuonRule& rule) {
  at::Tensor& flat = p.state->second_moment();
  if (!flat.defined())
    flat = at::zeros({flat_size(p.parts, rule.moment2)},
                     p.weights.options().requires_grad(false).dtype(
                         muon::second_moment_dtype(rule.moment2, p.weights.scalar_type())));
  const auto moments = flat_slices(flat, p.parts, rule.moment2, "second_moment");
  for (size_t k = 0; k < updates.size(); ++k)
    muon::apply_second_moment_(updates[k], moments[k], rule.moment2, rule.beta2, rule.moment2_eps,
                               p.parts[k].direction,
                               p.grad_norms.empty() ? at::Tensor() : p.grad_norms[k]);
}

// What brings every matrix of a part to an RMS of 1; 0 for one of zeros.
at::Tensor unit_rms_factor(const at::Tensor& update) {
  const double elements = static_cast<double>(update.size(-2) * update.size(-1));
  return muon::factor_to_norm(update, std::sqrt(elements), muon::kHyperballEps);
}

// The weights back to their radius.
void project(const PendingUpdate& p) {
  const auto lengths = radii(p);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : muon::split_blocks(p.weights.reshape(p.shape), p.spec->blocks))
    parts.push_back(
        part.mul(muon::factor_to_norm(part, lengths[parts.size()], muon::kHyperballEps)));
  p.weights.copy_(muon::merge_blocks(parts, p.spec->blocks, p.shape).reshape(p.weights.sizes()));
}

void write_back(const PendingUpdate& p, const MuonRule& rule) {
  if (p.weights.is_same(p.param)) return;
  if (!rule.stochastic_rounding) {
    p.param.copy_(p.weights);
    return;
  }
  const CounterRng rng({rule.seed, hash_name("stochastic_rounding"),
                        static_cast<uint64_t>(p.state->step().item<int64_t>()),
                        hash_name(p.spec->name)});
  p.param.copy_(muon::round_stochastically(p.weights, rng));
}

}  // namespace

at::ScalarType muon_compute_dtype(const at::Tensor& param) {
  return param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::vector<int64_t> muon_shape(const at::Tensor& param, const ParamSpec& spec) {
  return matrix_shape(param.sizes().vec(), spec.flatten);
}

void check_rounding(const at::Tensor& param, const ParamSpec& spec) {
  check(param.scalar_type() == at::kBFloat16,
        "{}: stochastic_rounding is for bf16 parameters, this one is {}", spec.name,
        c10::toString(param.scalar_type()));
  check(!spec.name.empty(),
        "stochastic_rounding draws by the parameter's name: a parameter has none (set_spec)");
}

SquareSum observe_parameter(const at::Tensor& param, const ParamSpec& spec, MuonParamState& state,
                            const MuonRule& rule, double grad_scale) {
  const auto shape = muon_shape(param, spec);
  if (!state.shadow_exp_avg().defined()) {
    AdamWShadow fresh =
        make_shadow(shape, param.options().dtype(muon_compute_dtype(param)).requires_grad(false));
    state.shadow_exp_avg(fresh.exp_avg);
    state.shadow_exp_avg_sq(fresh.exp_avg_sq);
  }
  const int64_t step = (state.step().defined() ? state.step().item<int64_t>() : 0) + 1;
  return advance_shadow_({state.shadow_exp_avg(), state.shadow_exp_avg_sq()},
                         param.grad().reshape(shape), grad_scale, step, rule.shadow);
}

PendingUpdate prepare_update(const at::Tensor& param, const ParamSpec& spec, MuonParamState& state,
                             const MuonRule& rule, const StepArgs& args,
                             const std::optional<SquareSum>& observed) {
  const at::ScalarType dtype = muon_compute_dtype(param);
  PendingUpdate p{param, param.to(dtype), {}, {}, &spec, muon_shape(param, spec), &state};
  if (rule.counts_steps()) {
    if (!state.step().defined()) state.step(at::zeros({}, at::kFloat));
    state.step().add_(1);
  }
  p.factor = step_factor(rule, state, observed);
  if (rule.hyperball) ensure_radius(p);
  muon::apply_weight_decay_(p.weights, rule.decay, rule.weight_decay, rule.lr);
  const at::Tensor grad = muon::effective_gradient(param.grad(), args.grad_scale, p.weights,
                                                   rule.decay, rule.weight_decay, dtype);
  const at::Tensor& momentum = state.momentum_buffer();
  muon::update_momentum_(momentum, grad, rule.momentum, rule.momentum_kind);
  const at::Tensor direction =
      muon::momentum_direction(momentum, grad, rule.momentum, rule.nesterov, rule.momentum_kind);
  for (at::Tensor& part : muon::split_blocks(direction.reshape(p.shape), spec.blocks))
    p.parts.push_back({std::move(part), &spec});
  if (rule.moment2 == SecondMoment::kNamo)
    for (const at::Tensor& part : muon::split_blocks(grad.reshape(p.shape), spec.blocks))
      p.grad_norms.push_back(muon::matrix_norm(part));
  return p;
}

void apply_update(const PendingUpdate& p, std::vector<at::Tensor> updates,
                  const std::vector<double>& scales, const MuonRule& rule, bool measure,
                  GroupStats& stats) {
  if (rule.moment2 != SecondMoment::kNone) apply_second_moment(updates, p, rule);
  const auto lengths = rule.hyperball ? radii(p) : std::vector<at::Tensor>{};
  for (size_t k = 0; k < updates.size(); ++k) {
    stats.matrices += updates[k].dim() == 3 ? updates[k].size(0) : 1;
    if (rule.hyperball)
      updates[k].mul_(muon::factor_to_norm(updates[k], lengths[k], muon::kHyperballEps));
    else if (rule.align_update_rms)
      updates[k].mul_(unit_rms_factor(updates[k]).mul_(p.factor));
    else
      updates[k].mul_(p.factor * scales[k]);
  }
  const at::Tensor update =
      muon::merge_blocks(updates, p.spec->blocks, p.shape).reshape(p.param.sizes());
  if (measure) {
    const double norm = at::linalg_vector_norm(update).item<double>();
    stats.update_square_sum += norm * norm;
  }
  stats.elements += update.numel();
  stats.factor_sum += p.factor * static_cast<double>(update.numel());
  if (rule.decay == muon::WeightDecayMethod::kCautious)
    muon::apply_cautious_decay_(p.weights, update, rule.weight_decay, rule.lr);
  p.weights.add_(update, -rule.lr);
  if (rule.hyperball) project(p);
  write_back(p, rule);
}

}  // namespace muoncore::optim
