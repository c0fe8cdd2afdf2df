#include "muoncore/optim/muon.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/muon/batch.h"
#include "muoncore/muon/matrix_blocks.h"
#include "muoncore/muon/newton_schulz.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/muon/update_rule.h"

namespace muoncore::optim {
namespace {

// A group's options with its words looked up, for one step.
struct Rule {
  double lr, momentum, weight_decay, extra_scale_factor;
  bool nesterov;
  muon::WeightDecayMethod decay;
  muon::ScaleMode scale;
  muon::NewtonSchulzOptions newton_schulz;
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
  Rule rule{o.lr(),
            o.momentum(),
            o.weight_decay(),
            o.extra_scale_factor(),
            o.nesterov(),
            muon::parse_weight_decay_method(o.weight_decay_method()),
            muon::parse_scale_mode(o.scale_mode()),
            {}};
  rule.newton_schulz.coefficient_type = o.coefficient_type();
  rule.newton_schulz.custom_coefficients = triples_of(o.custom_coefficients());
  rule.newton_schulz.steps = o.num_ns_steps();
  rule.newton_schulz.precision = muon::parse_matmul_precision(o.fp32_matmul_prec());
  rule.newton_schulz.eps = o.ns_eps();
  rule.newton_schulz.upstream_exact = o.upstream_exact();
  muon::resolve_coefficients(rule.newton_schulz);
  return rule;
}

at::ScalarType compute_dtype(const at::Tensor& param) {
  return param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void check_param(const at::Tensor& p) {
  check(p.defined() && (p.dim() == 2 || p.dim() == 3),
        "Muon takes matrices [rows, cols] or batches of them [batch, rows, cols], got a parameter "
        "of shape [{}]: give it "
        "to AdamW",
        p.defined() ? fmt::format("{}", fmt::join(p.sizes().vec(), ", ")) : "undefined");
  check(at::isFloatingType(p.scalar_type()), "Muon takes floating-point parameters, got {}",
        at::toString(p.scalar_type()));
}

// One parameter between its momentum and its update.
struct Pending {
  at::Tensor param;
  at::Tensor weights;  // the parameter in the dtype it is computed in; the parameter itself where
                       // that is its own
  at::Tensor direction;
  const RowBlocks* blocks;
};

// Enough elements that equal small matrices meet in one batch, few enough to keep the memory of a
// step small.
constexpr int64_t kPendingElements = int64_t{1} << 22;

// Orthogonalizes and applies what is pending: weights -= lr * extra * scale(part) * O(part) for
// each logical matrix.
void apply_pending(std::vector<Pending>& pending, const Rule& rule, bool measure,
                   GroupStats& stats) {
  std::vector<at::Tensor> parts;
  for (const Pending& p : pending)
    for (at::Tensor& part : muon::split_blocks(p.direction, *p.blocks))
      parts.push_back(std::move(part));
  std::vector<at::Tensor> updates = muon::orthogonalize_all(parts, rule.newton_schulz);
  auto next = updates.begin();
  for (const Pending& p : pending) {
    const auto last =
        next + static_cast<std::ptrdiff_t>(std::max<size_t>(1, p.blocks->rows.size()));
    std::vector<at::Tensor> own(next, last);
    next = last;
    for (at::Tensor& update : own) {
      stats.matrices += update.dim() == 3 ? update.size(0) : 1;
      update.mul_(rule.extra_scale_factor *
                  muon::scale_factor(rule.scale, update.size(-2), update.size(-1)));
    }
    at::Tensor update = muon::merge_blocks(own, *p.blocks, p.direction.sizes());
    if (measure) {
      const double norm = at::linalg_vector_norm(update).item<double>();
      stats.update_square_sum += norm * norm;
    }
    stats.elements += update.numel();
    p.weights.add_(update, -rule.lr);
    if (!p.weights.is_same(p.param)) p.param.copy_(p.weights);
  }
  pending.clear();
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

void Muon::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  if (group.has_options()) {
    const auto* options = dynamic_cast<const MuonOptions*>(&group.options());
    check(options != nullptr, "a parameter group of Muon needs MuonOptions");
    check_options(*options);
  }
  for (const at::Tensor& p : group.params()) check_param(p);
  ManagedOptimizer::add_param_group(group);
}

void Muon::set_spec(const at::Tensor& param, const ParamSpec& spec) {
  bool own = false;
  for (const auto& group : param_groups_)
    for (const at::Tensor& p : group.params()) own = own || p.is_same(param);
  check(own, "{}: its specification was given to a Muon that does not update it", spec.name);
  muon::check_blocks(spec.blocks, param.size(-2), spec.name);
  specs_[param.unsafeGetTensorImpl()] = spec;
}

const ParamSpec& Muon::spec_of(const at::Tensor& param) const {
  static const ParamSpec plain;
  auto it = specs_.find(param.unsafeGetTensorImpl());
  return it == specs_.end() ? plain : it->second;
}

at::Tensor& Muon::momentum_of(const at::Tensor& param) {
  auto& state = state_[param.unsafeGetTensorImpl()];
  if (!state) {
    auto fresh = std::make_unique<MuonParamState>();
    fresh->momentum_buffer(
        at::zeros(param.sizes(), param.options().dtype(compute_dtype(param)).requires_grad(false)));
    state = std::move(fresh);
  }
  return static_cast<MuonParamState&>(*state).momentum_buffer();
}

void Muon::step_group(size_t index, const StepArgs& args) {
  const auto& group = param_groups_[index];
  const Rule rule = resolve(static_cast<const MuonOptions&>(group.options()));
  GroupStats& stats = stats_[index];
  std::vector<Pending> pending;
  int64_t expected = 0, elements = 0;
  for (const at::Tensor& param : group.params()) {
    const at::Tensor& grad = param.grad();
    if (!grad.defined()) continue;
    const at::ScalarType dtype = compute_dtype(param);
    at::Tensor weights = param.to(dtype);
    muon::apply_weight_decay_(weights, rule.decay, rule.weight_decay, rule.lr);
    at::Tensor g = muon::effective_gradient(grad, args.grad_scale, weights, rule.decay,
                                            rule.weight_decay, dtype);
    at::Tensor& momentum = momentum_of(param);
    muon::update_momentum_(momentum, g, rule.momentum);
    const RowBlocks& blocks = spec_of(param).blocks;
    pending.push_back({param, weights,
                       muon::momentum_direction(momentum, g, rule.momentum, rule.nesterov),
                       &blocks});
    expected += muon::count_matrices(param.sizes(), blocks);
    elements += param.numel();
    if (elements < kPendingElements) continue;
    apply_pending(pending, rule, measure_update_rms_, stats);
    elements = 0;
  }
  apply_pending(pending, rule, measure_update_rms_, stats);
  check(stats.matrices == expected,
        "group {} of Muon: {} of {} matrices with a gradient were orthogonalized", index,
        stats.matrices, expected);
}

void Muon::step_with(const StepArgs& args) {
  at::NoGradGuard no_grad;
  stats_.assign(param_groups_.size(), GroupStats{});
  for (size_t i = 0; i < param_groups_.size(); ++i) step_group(i, args);
}

int64_t Muon::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& entry : state_)
    bytes += static_cast<int64_t>(
        static_cast<const MuonParamState&>(*entry.second).momentum_buffer().nbytes());
  return bytes;
}

double Muon::weight_decay(size_t group) const {
  return static_cast<const MuonOptions&>(param_groups_.at(group).options()).weight_decay();
}

void Muon::set_weight_decay(size_t group, double weight_decay) {
  static_cast<MuonOptions&>(param_groups_.at(group).options()).weight_decay(weight_decay);
}

}  // namespace muoncore::optim
