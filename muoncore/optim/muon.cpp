#include "muoncore/optim/muon.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/muon/matrix_blocks.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/muon/second_moment.h"
#include "muoncore/muon/update_rule.h"

namespace muoncore::optim {
namespace {

// A group's options with its words looked up, for one step.
struct Rule {
  double lr, momentum, weight_decay, extra_scale_factor;
  bool nesterov;
  muon::WeightDecayMethod decay;
  muon::ScaleMode scale;
  muon::SecondMoment moment2;
  double beta2, moment2_eps;
  muon::OrthogonalizeOptions orthogonalize;
};

std::vector<muon::Coefficients> triples_of(const std::vector<double>& flat) {
  check(flat.size() % 3 == 0,
        "custom_coefficients hold a, b, c of each step: {} numbers are not a multiple of 3",
        flat.size());
  std::vector<muon::Coefficients> out;
  for (size_t i = 0; i < flat.size(); i += 3) out.push_back({flat[i], flat[i + 1], flat[i + 2]});
  return out;
}

Rule resolve(const MuonOptions& o) {
  check(o.lr() >= 0, "Muon's lr must be at least 0, got {}", o.lr());
  check(o.momentum() >= 0 && o.momentum() < 1, "Muon's momentum must be in [0, 1), got {}",
        o.momentum());
  check(o.weight_decay() >= 0, "Muon's weight_decay must be at least 0, got {}", o.weight_decay());
  check(o.extra_scale_factor() > 0, "Muon's extra_scale_factor must be above 0, got {}",
        o.extra_scale_factor());
  check(!o.ns_eps() || *o.ns_eps() >= 0, "Muon's ns_eps must be at least 0, got {}",
        o.ns_eps().value_or(0));
  check(o.beta2() >= 0 && o.beta2() < 1, "Muon's beta2 must be in [0, 1), got {}", o.beta2());
  check(o.moment2_eps() > 0, "Muon's moment2_eps must be above 0, got {}", o.moment2_eps());
  check(o.moment2_method() != "namo" || o.weight_decay_method() != "l2",
        "moment2_method namo needs a gradient without weight decay in it: not weight_decay_method "
        "l2");
  Rule rule{o.lr(),
            o.momentum(),
            o.weight_decay(),
            o.extra_scale_factor(),
            o.nesterov(),
            muon::parse_weight_decay_method(o.weight_decay_method()),
            muon::parse_scale_mode(o.scale_mode()),
            muon::parse_second_moment(o.moment2_method()),
            o.beta2(),
            o.moment2_eps(),
            {}};
  muon::NewtonSchulzOptions& newton_schulz = rule.orthogonalize.newton_schulz;
  newton_schulz.coefficient_type = o.coefficient_type();
  newton_schulz.custom_coefficients = triples_of(o.custom_coefficients());
  newton_schulz.steps = o.num_ns_steps();
  newton_schulz.precision = muon::parse_matmul_precision(o.fp32_matmul_prec());
  newton_schulz.eps = o.ns_eps();
  newton_schulz.upstream_exact = o.upstream_exact();
  muon::resolve_coefficients(newton_schulz);
  return rule;
}

at::ScalarType compute_dtype(const at::Tensor& param) {
  return param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

std::vector<int64_t> seen_shape(const at::Tensor& param, const ParamSpec& spec) {
  return matrix_shape(param.sizes().vec(), spec.flatten);
}

void check_param(const at::Tensor& p, const ParamSpec& spec) {
  check(p.defined() && p.dim() >= 2 && (p.dim() <= 3 || spec.flatten),
        "Muon takes matrices [rows, cols] or batches of them [batch, rows, cols], got a parameter "
        "of shape [{}]: give it to AdamW, or declare a convolution's kernel by a ParamSpec with "
        "flatten",
        p.defined() ? fmt::format("{}", fmt::join(p.sizes().vec(), ", ")) : "undefined");
  check(at::isFloatingType(p.scalar_type()), "Muon takes floating-point parameters, got {}",
        at::toString(p.scalar_type()));
  muon::check_blocks(spec.blocks, seen_shape(p, spec).end()[-2], spec.name);
}

// One parameter between its momentum and its update.
struct Pending {
  at::Tensor param;
  // in the dtype of the computation; the parameter itself where that is its own
  at::Tensor weights;
  std::vector<MuonPart> parts;         // its logical matrices
  std::vector<at::Tensor> grad_norms;  // likewise; empty unless the second moment reads them
  const ParamSpec* spec;
  std::vector<int64_t> shape;  // the parameter as Muon sees it (matrix_shape)
  MuonParamState* state;
};

void apply_second_moment(std::vector<at::Tensor>& updates, const Pending& p, const Rule& rule) {
  at::Tensor& flat = p.state->second_moment();
  int64_t start = 0;
  for (size_t k = 0; k < updates.size(); ++k) {
    const auto shape = muon::second_moment_shape(rule.moment2, updates[k].sizes());
    const int64_t count = c10::multiply_integers(shape);
    at::Tensor grad_norm = p.grad_norms.empty() ? at::Tensor() : p.grad_norms[k];
    muon::apply_second_moment_(updates[k], flat.narrow(0, start, count).view(shape), rule.moment2,
                               rule.beta2, rule.moment2_eps, p.parts[k].direction, grad_norm);
    start += count;
  }
}

// From the orthogonalized parts of one parameter to its new weights:
// weights -= lr * extra * scale(part) * part.
void apply_update(const Pending& p, std::vector<at::Tensor> updates,
                  const std::vector<double>& scales, const Rule& rule, bool measure,
                  GroupStats& stats) {
  if (rule.moment2 != muon::SecondMoment::kNone) apply_second_moment(updates, p, rule);
  for (size_t k = 0; k < updates.size(); ++k) {
    stats.matrices += updates[k].dim() == 3 ? updates[k].size(0) : 1;
    updates[k].mul_(rule.extra_scale_factor * scales[k]);
  }
  at::Tensor update = muon::merge_blocks(updates, p.spec->blocks, p.shape).reshape(p.param.sizes());
  if (measure) {
    const double norm = at::linalg_vector_norm(update).item<double>();
    stats.update_square_sum += norm * norm;
  }
  stats.elements += update.numel();
  if (rule.decay == muon::WeightDecayMethod::kCautious)
    muon::apply_cautious_decay_(p.weights, update, rule.weight_decay, rule.lr);
  p.weights.add_(update, -rule.lr);
  if (!p.weights.is_same(p.param)) p.param.copy_(p.weights);
}

void ensure_second_moment(const Pending& p, const Rule& rule) {
  int64_t count = 0;
  for (const MuonPart& part : p.parts)
    count +=
        c10::multiply_integers(muon::second_moment_shape(rule.moment2, part.direction.sizes()));
  at::Tensor& flat = p.state->second_moment();
  if (!flat.defined()) flat = at::zeros({count}, p.weights.options().requires_grad(false));
  check(flat.numel() == count, "second_moment holds {} elements, but {} are needed", flat.numel(),
        count);
}

// Decays the weights, updates the momentum and says what is to be orthogonalized.
Pending prepare(const at::Tensor& param, const ParamSpec& spec, MuonParamState& state,
                const Rule& rule, const StepArgs& args) {
  const at::ScalarType dtype = compute_dtype(param);
  Pending p{param, param.to(dtype), {}, {}, &spec, seen_shape(param, spec), &state};
  muon::apply_weight_decay_(p.weights, rule.decay, rule.weight_decay, rule.lr);
  at::Tensor grad = muon::effective_gradient(param.grad(), args.grad_scale, p.weights, rule.decay,
                                             rule.weight_decay, dtype);
  at::Tensor& momentum = state.momentum_buffer();
  muon::update_momentum_(momentum, grad, rule.momentum);
  at::Tensor direction = muon::momentum_direction(momentum, grad, rule.momentum, rule.nesterov);
  for (at::Tensor& part : muon::split_blocks(direction.reshape(p.shape), spec.blocks))
    p.parts.push_back({std::move(part), &spec});
  if (rule.moment2 == muon::SecondMoment::kNamo)
    for (const at::Tensor& part : muon::split_blocks(grad.reshape(p.shape), spec.blocks))
      p.grad_norms.push_back(muon::matrix_norm(part));
  if (rule.moment2 != muon::SecondMoment::kNone) ensure_second_moment(p, rule);
  return p;
}

}  // namespace

void check_options(const MuonOptions& options) { resolve(options); }

Muon::Muon(const std::vector<torch::optim::OptimizerParamGroup>& param_groups, MuonOptions defaults)
    : ManagedOptimizer(std::vector<torch::optim::OptimizerParamGroup>{},
                       std::make_unique<MuonOptions>(std::move(defaults))) {
  check_options(static_cast<const MuonOptions&>(this->defaults()));
  for (const auto& group : param_groups) add_param_group(group);
}

Muon::Muon(std::vector<at::Tensor> params, MuonOptions defaults)
    : Muon(std::vector<torch::optim::OptimizerParamGroup>{{std::move(params)}},
           std::move(defaults)) {}

void Muon::add_param_group(const torch::optim::OptimizerParamGroup& group,
                           const std::vector<ParamSpec>& specs) {
  if (group.has_options()) {
    const auto* options = dynamic_cast<const MuonOptions*>(&group.options());
    check(options != nullptr, "a parameter group of Muon needs MuonOptions");
    check_options(*options);
  }
  const auto& params = group.params();
  check(specs.empty() || specs.size() == params.size(),
        "a group of {} parameters came with {} specifications", params.size(), specs.size());
  for (size_t i = 0; i < params.size(); ++i)
    check_param(params[i], specs.empty() ? ParamSpec{} : specs[i]);
  ManagedOptimizer::add_param_group(group);
  for (size_t i = 0; i < specs.size(); ++i) specs_[params[i].unsafeGetTensorImpl()] = specs[i];
}

void Muon::set_spec(const at::Tensor& param, const ParamSpec& spec) {
  bool own = false;
  for (const auto& group : param_groups_)
    for (const at::Tensor& p : group.params()) own = own || p.is_same(param);
  check(own, "{}: its specification was given to a Muon that does not update it", spec.name);
  check_param(param, spec);
  specs_[param.unsafeGetTensorImpl()] = spec;
}

const ParamSpec& Muon::spec_of(const at::Tensor& param) const {
  static const ParamSpec plain;
  auto it = specs_.find(param.unsafeGetTensorImpl());
  return it == specs_.end() ? plain : it->second;
}

MuonParamState& Muon::state_of(const at::Tensor& param) {
  auto& state = state_[param.unsafeGetTensorImpl()];
  if (!state) {
    auto fresh = std::make_unique<MuonParamState>();
    fresh->momentum_buffer(
        at::zeros(param.sizes(), param.options().dtype(compute_dtype(param)).requires_grad(false)));
    state = std::move(fresh);
  }
  return static_cast<MuonParamState&>(*state);
}

std::vector<at::Tensor> Muon::orthogonalize(const std::vector<MuonPart>& parts,
                                            const muon::OrthogonalizeOptions& options) {
  std::vector<at::Tensor> directions;
  for (const MuonPart& part : parts) directions.push_back(part.direction);
  return muon::orthogonalize_directions(directions, options);
}

MatrixShape Muon::scale_shape(const MuonPart& part) const {
  return {part.direction.size(-2), part.direction.size(-1)};
}

void Muon::check_supported(const MuonOptions&) const {}

int64_t Muon::elements_per_call() const { return int64_t{1} << 22; }

struct Muon::GroupStep {
  Rule rule;
  std::vector<Pending> pending;
  GroupStats* stats;
};

void Muon::apply_pending(GroupStep& step) {
  std::vector<MuonPart> parts;
  for (const Pending& p : step.pending) parts.insert(parts.end(), p.parts.begin(), p.parts.end());
  if (parts.empty()) return;
  std::vector<at::Tensor> updates = orthogonalize(parts, step.rule.orthogonalize);
  auto next = updates.begin();
  for (const Pending& p : step.pending) {
    std::vector<double> scales;
    for (const MuonPart& part : p.parts) {
      const MatrixShape shape = scale_shape(part);
      scales.push_back(muon::scale_factor(step.rule.scale, shape.rows, shape.cols));
    }
    const auto last = next + static_cast<std::ptrdiff_t>(p.parts.size());
    apply_update(p, {next, last}, scales, step.rule, measure_update_rms_, *step.stats);
    next = last;
  }
  step.pending.clear();
}

void Muon::step_group(size_t index, const StepArgs& args) {
  const auto& group = param_groups_[index];
  const auto& options = static_cast<const MuonOptions&>(group.options());
  GroupStep step{resolve(options), {}, &stats_[index]};
  int64_t expected = 0, elements = 0;
  for (const at::Tensor& param : group.params()) {
    if (!param.grad().defined()) continue;
    const ParamSpec& spec = spec_of(param);
    step.pending.push_back(prepare(param, spec, state_of(param), step.rule, args));
    expected += muon::count_matrices(step.pending.back().shape, spec.blocks);
    elements += param.numel();
    if (elements < elements_per_call()) continue;
    apply_pending(step);
    elements = 0;
  }
  apply_pending(step);
  check(step.stats->matrices == expected,
        "group {} of Muon: {} of {} matrices with a gradient were orthogonalized", index,
        step.stats->matrices, expected);
}

void Muon::step_with(const StepArgs& args) {
  at::NoGradGuard no_grad;
  stats_.assign(param_groups_.size(), GroupStats{});
  for (const auto& group : param_groups_)
    check_supported(static_cast<const MuonOptions&>(group.options()));
  for (size_t i = 0; i < param_groups_.size(); ++i) step_group(i, args);
}

int64_t Muon::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& entry : state_) {
    const auto& state = static_cast<const MuonParamState&>(*entry.second);
    bytes += static_cast<int64_t>(state.momentum_buffer().nbytes());
    if (state.second_moment().defined())
      bytes += static_cast<int64_t>(state.second_moment().nbytes());
  }
  return bytes;
}

double Muon::weight_decay(size_t group) const {
  return static_cast<const MuonOptions&>(param_groups_.at(group).options()).weight_decay();
}

void Muon::set_weight_decay(size_t group, double weight_decay) {
  static_cast<MuonOptions&>(param_groups_.at(group).options()).weight_decay(weight_decay);
}

}  // namespace muoncore::optim
