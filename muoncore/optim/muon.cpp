#include "muoncore/optim/muon.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <fmt/ranges.h>

#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/muon/matrix_blocks.h"
#include "muoncore/optim/muon_rule.h"
#include "muoncore/optim/muon_update.h"

namespace muoncore::optim {
namespace {

void check_param(const at::Tensor& p, const ParamSpec& spec) {
  check(p.defined() && p.dim() >= 2 && (p.dim() <= 3 || spec.flatten),
        "Muon takes matrices [rows, cols] or batches of them [batch, rows, cols], got a parameter "
        "of shape [{}]: give it to AdamW, or declare a convolution's kernel by a ParamSpec with "
        "flatten",
        p.defined() ? fmt::format("{}", fmt::join(p.sizes().vec(), ", ")) : "undefined");
  check(at::isFloatingType(p.scalar_type()), "Muon takes floating-point parameters, got {}",
        at::toString(p.scalar_type()));
  muon::check_blocks(spec.blocks, muon_shape(p, spec).end()[-2], spec.name);
}

const MuonOptions& options_of(const torch::optim::OptimizerParamGroup& group) {
  return static_cast<const MuonOptions&>(group.options());
}

}  // namespace

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
    fresh->momentum_buffer(at::zeros(
        param.sizes(), param.options().dtype(muon_compute_dtype(param)).requires_grad(false)));
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

bool Muon::is_shared(const ParamSpec&) const { return false; }

struct Muon::GroupStep {
  MuonRule rule;
  std::vector<PendingUpdate> pending;
  GroupStats* stats;
};

void Muon::apply_pending(GroupStep& step) {
  std::vector<MuonPart> parts;
  for (const auto& p : step.pending) parts.insert(parts.end(), p.parts.begin(), p.parts.end());
  if (parts.empty()) return;
  std::vector<at::Tensor> updates = orthogonalize(parts, step.rule.orthogonalize);
  auto next = updates.begin();
  for (const auto& p : step.pending) {
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

void Muon::step_group(size_t index, const StepArgs& args,
                      const std::optional<SquareSum>& observed) {
  GroupStep step{resolve_rule(options_of(param_groups_[index])), {}, &stats_[index]};
  int64_t expected = 0;
  for (bool shared : {false, true}) {
    int64_t elements = 0;
    for (const at::Tensor& param : param_groups_[index].params()) {
      const ParamSpec& spec = spec_of(param);
      if (!param.grad().defined() || is_shared(spec) != shared) continue;
      step.pending.push_back(
          prepare_update(param, spec, state_of(param), step.rule, args, observed));
      expected += muon::count_matrices(step.pending.back().shape, spec.blocks);
      elements += param.numel();
      if (elements < elements_per_call()) continue;
      apply_pending(step);
      elements = 0;
    }
    apply_pending(step);
  }
  check(step.stats->matrices == expected,
        "group {} of Muon: {} of {} matrices with a gradient were orthogonalized", index,
        step.stats->matrices, expected);
}

void Muon::check_step() const {
  for (const auto& group : param_groups_) {
    check_supported(options_of(group));
    if (!options_of(group).stochastic_rounding()) continue;
    for (const at::Tensor& param : group.params())
      if (param.grad().defined()) check_rounding(param, spec_of(param));
  }
}

void Muon::step_with(const StepArgs& args) {
  at::NoGradGuard no_grad;
  check_step();
  stats_.assign(param_groups_.size(), GroupStats{});
  std::optional<SquareSum> observed = args.observed;
  if (!observed && observes()) observed = observe(args);
  for (size_t i = 0; i < param_groups_.size(); ++i) step_group(i, args, observed);
}

bool Muon::observes() const {
  bool any = static_cast<const MuonOptions&>(defaults()).adamw_match() == "measured";
  for (const auto& group : param_groups_)
    any = any || options_of(group).adamw_match() == "measured";
  return any;
}

SquareSum Muon::observe(const StepArgs& args) {
  at::NoGradGuard no_grad;
  SquareSum total;
  for (const auto& group : param_groups_) {
    const MuonRule rule = resolve_rule(options_of(group));
    if (rule.match != AdamWMatch::kMeasured) continue;
    for (const at::Tensor& param : group.params()) {
      if (!param.grad().defined()) continue;
      const SquareSum part =
          observe_parameter(param, spec_of(param), state_of(param), rule, args.grad_scale);
      total.sum += part.sum;
      total.count += part.count;
    }
  }
  return total;
}

double Muon::weight_decay(size_t group) const {
  return static_cast<const MuonOptions&>(param_groups_.at(group).options()).weight_decay();
}

void Muon::set_weight_decay(size_t group, double weight_decay) {
  static_cast<MuonOptions&>(param_groups_.at(group).options()).weight_decay(weight_decay);
}

}  // namespace muoncore::optim
