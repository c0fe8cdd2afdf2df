#include "muoncore/optim/build.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <type_traits>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/muon/matrix_blocks.h"
#include "muoncore/optim/adamw.h"
#include "muoncore/optim/lion.h"
#include "muoncore/optim/muon.h"

namespace muoncore::optim {

using torch::optim::OptimizerParamGroup;

namespace {

// Every matrix that a layout rule made, or that muon_split_qkv: false keeps whole.
std::vector<ParamSpec> laid_out(std::vector<ParamSpec> specs, const OptimizerConfig& config,
                                std::vector<std::string>& patterns) {
  LaidOutSpecs out = lay_out(std::move(specs), config.muon_matrix_layouts);
  patterns = std::move(out.patterns);
  if (config.muon_split_qkv) return std::move(out.specs);
  for (size_t i = 0; i < out.specs.size(); ++i) {
    check(patterns[i].empty() || out.specs[i].blocks.rows.empty(),
          "muon_matrix_layouts: rule '{}' splits {}, which muon_split_qkv: false keeps whole; "
          "drop one of the two",
          patterns[i], out.specs[i].name);
    out.specs[i].blocks = {};
  }
  return std::move(out.specs);
}

// Weight decay is for what has a direction to shrink. Source: Megatron-Core,
// get_standard_config_overrides.
bool is_decayed(const ParamSpec& spec, const OptimizerConfig& config) {
  return config.decay_vectors || (spec.shape.size() >= 2 && spec.role != ParamRole::kBias);
}

// One group: the names of its parameters in order, and this rank's pieces of them.
struct Members {
  std::vector<at::Tensor> tensors;
  std::vector<ParamSpec> specs;
  std::vector<std::string> names;
};

Members members(const ChainedOptimizer::Parts& parts, const OptimizerConfig& config,
                const std::string& optimizer, bool decayed) {
  Members found;
  std::vector<bool> is_member;
  for (size_t i = 0; i < parts.params.size(); ++i) {
    const ParamSpec& spec = parts.params[i].spec;
    is_member.push_back(parts.routes[i].optimizer == optimizer &&
                        is_decayed(spec, config) == decayed);
    if (is_member[i]) found.names.push_back(spec.name);
  }
  for (const OwnedPiece& piece : parts.pieces) {
    if (!is_member[piece.param]) continue;
    found.tensors.push_back(piece.master);
    found.specs.push_back(parts.params[piece.param].spec);
  }
  return found;
}

AdamWOptions adam_options(const OptimizerConfig& config) {
  return AdamWOptions(config.adam_lr.value_or(config.lr))
      .betas({config.betas[0], config.betas[1]})
      .eps(config.adam_eps)
      .weight_decay(config.adam_weight_decay.value_or(config.weight_decay))
      .decoupled_weight_decay(config.adam_decoupled_weight_decay);
}

LionOptions lion_options(const OptimizerConfig& config) {
  return LionOptions(config.adam_lr.value_or(config.lr))
      .betas({config.lion_betas[0], config.lion_betas[1]})
      .weight_decay(config.adam_weight_decay.value_or(config.weight_decay));
}

// Adds the groups `name` and `name`_no_decay, those that have members, to the optimizer and to the
// parts.
template <typename Optimizer, typename Options>
void add_groups(ChainedOptimizer::Parts& parts, Optimizer& optimizer, const OptimizerConfig& config,
                const std::string& name, const Options& options, const GroupSchedule& schedule) {
  for (bool decayed : {true, false}) {
    Members found = members(parts, config, name, decayed);
    if (found.names.empty()) continue;
    ChainedGroup group{decayed ? name : name + "_no_decay", schedule, &optimizer,
                       optimizer.param_groups().size(), std::move(found.names)};
    group.schedule.wd_mult = decayed ? 1.0 : 0.0;
    Options own = options;
    own.weight_decay(options.weight_decay() * group.schedule.wd_mult);
    OptimizerParamGroup members(std::move(found.tensors), std::make_unique<Options>(own));
    if constexpr (std::is_same_v<Optimizer, Muon>)
      optimizer.add_param_group(members, found.specs);
    else
      optimizer.add_param_group(members);
    parts.groups.push_back(std::move(group));
  }
}

void add_muon(ChainedOptimizer::Parts& parts, const OptimizerConfig& config,
              const MuonFactory& make_muon) {
  const MuonOptions options = muon_options(config);
  std::unique_ptr<Muon> muon = make_muon(options);
  add_groups(parts, *muon, config, "muon", options,
             {.max_lr = config.lr, .min_lr = config.min_lr, .start_wd = {}, .end_wd = {}});
  for (OwnedPiece& piece : parts.pieces) {
    if (parts.routes[piece.param].optimizer != "muon") continue;
    const ParamSpec& spec = parts.params[piece.param].spec;
    piece.matrices = muoncore::muon::count_matrices(
        matrix_shape(piece.master.sizes().vec(), spec.flatten), spec.blocks);
  }
  parts.children.push_back({"muon", std::move(muon)});
}

// AdamW or Lion, for all that Muon does not update.
template <typename Optimizer, typename Options>
void add_scalar(ChainedOptimizer::Parts& parts, const OptimizerConfig& config,
                const Options& options) {
  const std::string name = scalar_optimizer(config);
  auto scalar = std::make_unique<Optimizer>(std::vector<OptimizerParamGroup>{}, options);
  GroupSchedule schedule{.max_lr = options.lr(),
                         .min_lr = config.adam_min_lr.value_or(config.min_lr),
                         .start_wd = config.adam_weight_decay,
                         .end_wd = config.adam_weight_decay};
  add_groups(parts, *scalar, config, name, options, schedule);
  if (!scalar->param_groups().empty()) parts.children.push_back({name, std::move(scalar)});
}

// The fp32 master of a bf16 parameter, or the parameter itself where there is none.
at::Tensor master_of(const at::Tensor& param, const Route& route, const OptimizerConfig& config) {
  if (param.scalar_type() != at::kBFloat16) return param;
  if (route.optimizer == "muon" && config.muon_bf16_params != "masters") return param;
  return param.detach().to(at::kFloat).set_requires_grad(true);
}

// Without masters there must be something that they would have been of.
void check_bf16(const ChainedOptimizer::Parts& parts, const OptimizerConfig& config) {
  if (!uses_muon(config) || config.muon_bf16_params == "masters") return;
  for (size_t i = 0; i < parts.params.size(); ++i)
    check(parts.routes[i].optimizer != "muon" ||
              parts.params[i].tensor.scalar_type() == at::kBFloat16,
          "muon_bf16_params: {} is for bf16 matrices, but '{}' is {}", config.muon_bf16_params,
          parts.params[i].spec.name, c10::toString(parts.params[i].tensor.scalar_type()));
  for (const OwnedPiece& piece : parts.pieces)
    check(parts.routes[piece.param].optimizer != "muon" ||
              piece.master.is_same(parts.params[piece.param].tensor),
          "muon_bf16_params: {} works on one rank only: ranks that share the optimizer keep "
          "masters",
          config.muon_bf16_params);
}

}  // namespace

void check_params(const std::vector<NamedParam>& params, bool muon) {
  std::set<std::string> names;
  std::set<const void*> tensors;
  for (const auto& [spec, tensor] : params) {
    check(names.insert(spec.name).second, "parameter '{}' is given twice", spec.name);
    check(tensors.insert(tensor.unsafeGetTensorImpl()).second,
          "parameter '{}' is the tensor of another parameter too: give tied weights once",
          spec.name);
    check(tensor.sizes() == at::IntArrayRef(spec.shape),
          "parameter '{}' has the shape [{}] where its spec says [{}]", spec.name,
          fmt::join(tensor.sizes(), ", "), fmt::join(spec.shape, ", "));
    check(tensor.is_leaf() && tensor.is_contiguous(), "parameter '{}' is no contiguous leaf",
          spec.name);
    const auto dtype = tensor.scalar_type();
    check(!muon || dtype != at::kHalf,
          "parameter '{}' is fp16: Muon takes fp32, bf16 or fp64 parameters", spec.name);
    check(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble,
          "parameter '{}' is {}: allowed are fp32, bf16 and fp64", spec.name, c10::toString(dtype));
  }
}

RoutedSpecs route_specs(std::vector<ParamSpec> specs, const OptimizerConfig& config) {
  RoutedSpecs out{std::move(specs), {}};
  if (!uses_muon(config)) {
    for (const auto& spec : out.specs)
      out.routes.push_back({spec.name, "adam", fmt::format("optimizer: {}", config.optimizer)});
    return out;
  }
  std::vector<std::string> patterns;
  out.specs = laid_out(std::move(out.specs), config, patterns);
  out.routes = route_all(out.specs, config.routing_rules);
  for (size_t i = 0; i < out.routes.size(); ++i) {
    Route& route = out.routes[i];
    if (route.optimizer == "adam") route.optimizer = scalar_optimizer(config);
    check(patterns[i].empty() || route.optimizer == "muon",
          "muon_matrix_layouts: rule '{}' lays out {}, which {} updates ({}); layouts are for what "
          "Muon updates",
          patterns[i], route.name, route.optimizer, route.why);
  }
  return out;
}

void check_has_matrices(const std::vector<Route>& routes, const OptimizerConfig& config) {
  const bool any = std::any_of(routes.begin(), routes.end(),
                               [](const Route& route) { return route.optimizer == "muon"; });
  check(any || !uses_muon(config),
        "optimizer: muon, but no parameter of this model is a matrix of the transformer body");
}

std::unique_ptr<ChainedOptimizer> build_chain(ChainedOptimizer::Parts parts,
                                              const OptimizerConfig& config,
                                              const MuonFactory& make_muon) {
  check_bf16(parts, config);
  parts.muon_masters = config.muon_bf16_params == "masters";
  parts.scalar_optimizer = scalar_optimizer(config);
  parts.clip_grad = config.clip_grad;
  parts.measure_update_rms = config.measure_update_rms;
  if (uses_muon(config)) {
    parts.extra_scale_factor = resolved_extra_scale_factor(config);
    add_muon(parts, config, make_muon);
  }
  if (scalar_optimizer(config) == "lion")
    add_scalar<Lion>(parts, config, lion_options(config));
  else
    add_scalar<AdamW>(parts, config, adam_options(config));
  for (auto& child : parts.children)
    child.optimizer->set_measure_update_rms(config.measure_update_rms);
  return std::make_unique<ChainedOptimizer>(std::move(parts));
}

std::unique_ptr<Muon> local_muon(const MuonOptions& options) {
  return std::make_unique<Muon>(std::vector<OptimizerParamGroup>{}, options);
}

std::unique_ptr<ChainedOptimizer> build_optimizer(const std::vector<NamedParam>& params,
                                                  const OptimizerConfig& config) {
  validate(config);
  check(!params.empty(), "an optimizer needs at least one parameter");
  check_params(params, uses_muon(config));
  ChainedOptimizer::Parts parts;
  std::vector<ParamSpec> specs;
  for (const auto& param : params) specs.push_back(param.spec);
  RoutedSpecs routed = route_specs(std::move(specs), config);
  check_has_matrices(routed.routes, config);
  parts.routes = std::move(routed.routes);
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor& tensor = params[i].tensor;
    parts.params.push_back({std::move(routed.specs[i]), tensor});
    OwnedPiece piece{.param = i,
                     .begin = 0,
                     .end = tensor.numel(),
                     .master = master_of(tensor, parts.routes[i], config)};
    if (!piece.master.is_same(tensor)) piece.target = tensor;
    parts.pieces.push_back(std::move(piece));
  }
  return build_chain(std::move(parts), config);
}

}  // namespace muoncore::optim
