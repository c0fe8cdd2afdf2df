#include "muoncore/optim/optimizer_config.h"

#include <algorithm>
#include <cmath>

#include "muoncore/core/check.h"
#include "muoncore/muon/coefficients.h"
#include "muoncore/muon/newton_schulz.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/optim/check_choice.h"

namespace muoncore::optim {
namespace {

// Upstream's other optimizers: known by name, so that nobody takes them for typing errors.
const std::vector<std::string> kOthers{"sgd",  "adaptive_muon", "dist_muon", "dist_adam",
                                       "lion", "soap",          "adagrad",   "muon_adamw"};

struct Checker {
  const OptimizerConfig& config;
  const std::string& prefix;

  void range(const char* key, double value, bool ok, const char* allowed) const {
    check(ok, "{}{}: {}: allowed are {}", prefix, key, value, allowed);
  }
  void from_zero(const char* key, double value) const {
    range(key, value, value >= 0.0 && std::isfinite(value), "finite numbers from 0");
  }
  void below_one(const char* key, double value) const {
    range(key, value, value >= 0.0 && value < 1.0, "numbers from 0 to below 1");
  }
  void choice(const char* key, const std::string& value,
              const std::vector<std::string>& choices) const {
    check_choice(prefix + key, value, choices);
  }

  void base() const;
  void adam_only() const;
  void scalar_part() const;
  void muon() const;
  void stages() const;
};

void Checker::base() const {
  from_zero("lr", config.lr);
  from_zero("min_lr", config.min_lr);
  check(config.min_lr <= config.lr, "{0}min_lr: {1} is above {0}lr: {2}", prefix, config.min_lr,
        config.lr);
  from_zero("weight_decay", config.weight_decay);
  for (double beta : config.betas) below_one("betas", beta);
  range("adam_eps", config.adam_eps, config.adam_eps > 0.0 && std::isfinite(config.adam_eps),
        "finite numbers above 0");
  from_zero("clip_grad", config.clip_grad);
}

void Checker::adam_only() const {
  check(!config.adam_lr && !config.adam_min_lr && !config.adam_weight_decay,
        "{0}adam_lr, {0}adam_min_lr and {0}adam_weight_decay set AdamW apart from Muon: under "
        "{0}optimizer: {1} set {0}lr, {0}min_lr and {0}weight_decay",
        prefix, config.optimizer);
  check(config.routing_rules.empty(), "{0}routing_rules need {0}optimizer: muon, not {1}", prefix,
        config.optimizer);
  check(config.muon_matrix_layouts.empty() && !config.muon_qk_clip_tau,
        "{0}muon_matrix_layouts and {0}muon_qk_clip_tau need {0}optimizer: muon, not {1}", prefix,
        config.optimizer);
  check(config.lion_betas == OptimizerConfig{}.lion_betas,
        "{0}lion_beta1 and {0}lion_beta2 need {0}optimizer: muon with {0}muon_scalar_optimizer: "
        "lion",
        prefix);
  check(!config.muon_match_adamw_update_rms,
        "{0}muon_match_adamw_update_rms needs {0}optimizer: muon, not {1}", prefix,
        config.optimizer);
}

// What AdamW has of its own in a Muon run.
void Checker::scalar_part() const {
  choice("muon_scalar_optimizer", config.muon_scalar_optimizer, {"adam", "adamw", "lion"});
  const bool lion = config.muon_scalar_optimizer == "lion";
  for (double beta : config.lion_betas) below_one("lion_beta1, lion_beta2", beta);
  check(lion || config.lion_betas == OptimizerConfig{}.lion_betas,
        "{0}lion_beta1 and {0}lion_beta2 need {0}muon_scalar_optimizer: lion, not {1}", prefix,
        config.muon_scalar_optimizer);
  check(!lion || config.adam_decoupled_weight_decay,
        "{0}adam_decoupled_weight_decay: false is Adam's; {0}muon_scalar_optimizer: lion has no "
        "other weight decay than the decoupled one",
        prefix);
  const double lr = config.adam_lr.value_or(config.lr);
  const double min_lr = config.adam_min_lr.value_or(config.min_lr);
  from_zero("adam_lr", lr);
  from_zero("adam_min_lr", min_lr);
  check(min_lr <= lr, "{0}{1}: {2} is above {0}{3}: {4}", prefix,
        config.adam_min_lr ? "adam_min_lr" : "min_lr", min_lr, config.adam_lr ? "adam_lr" : "lr",
        lr);
  from_zero("adam_weight_decay", config.adam_weight_decay.value_or(config.weight_decay));
}

void Checker::muon() const {
  below_one("muon_momentum", config.muon_momentum);
  choice("muon_scale_mode", config.muon_scale_mode, {"spectral", "unit_rms_norm", "shape_scaling"});
  std::vector<std::string> types;
  for (const auto& set : muoncore::muon::all_coefficient_sets()) types.push_back(set.name);
  types.emplace_back("custom");
  choice("muon_coefficient_type", config.muon_coefficient_type, types);
  check(config.muon_num_ns_steps >= 1, "{}muon_num_ns_steps: {}: allowed are numbers from 1",
        prefix, config.muon_num_ns_steps);
  choice("muon_tp_mode", config.muon_tp_mode,
         {"duplicated", "distributed", "layer_sharded", "blockwise"});
  choice("muon_fp32_matmul_prec", config.muon_fp32_matmul_prec, {"highest", "high", "medium"});
  choice("muon_ns_impl", config.muon_ns_impl, {"standard", "fast", "faster"});
  check(config.muon_ns_impl == "standard",
        "{}muon_ns_impl: {} is not supported yet: choose standard", prefix, config.muon_ns_impl);
  from_zero("muon_ns_eps", config.muon_ns_eps.value_or(0.0));
  const double tau = config.muon_qk_clip_tau.value_or(1.0);
  range("muon_qk_clip_tau", tau, tau > 0.0 && std::isfinite(tau), "finite numbers above 0");
  for (const LayoutRule& rule : config.muon_matrix_layouts) check_layout_rule(rule);
  const double factor = config.muon_extra_scale_factor;
  range("muon_extra_scale_factor", factor, factor > 0.0 && std::isfinite(factor),
        "finite numbers above 0");
  stages();
  resolved_extra_scale_factor(config, prefix);
  check_options(muon_options(config, prefix));  // refuses what diverges
}

// What is said with the config's keys is said here; the rest Muon refuses itself.
void Checker::stages() const {
  choice("muon_bf16_params", config.muon_bf16_params, {"masters", "nearest", "stochastic"});
  choice("muon_match_adamw_update_rms_mode", config.muon_match_adamw_update_rms_mode,
         {"stationary", "bias_corrected", "measured"});
  check(
      config.muon_match_adamw_update_rms || config.muon_match_adamw_update_rms_mode == "stationary",
      "{0}muon_match_adamw_update_rms_mode: {1} needs {0}muon_match_adamw_update_rms", prefix,
      config.muon_match_adamw_update_rms_mode);
  const bool custom = config.muon_coefficient_type == "custom";
  check(custom == !config.muon_custom_coefficients.empty() &&
            config.muon_custom_coefficients.size() % 3 == 0,
        "{0}muon_custom_coefficients hold a, b, c of each step for {0}muon_coefficient_type: "
        "custom: got {1} numbers with {2}",
        prefix, config.muon_custom_coefficients.size(), config.muon_coefficient_type);
  check(custom || config.muon_custom_iteration_mode == "cycle",
        "{0}muon_custom_iteration_mode: {1} needs {0}muon_coefficient_type: custom, not {2}",
        prefix, config.muon_custom_iteration_mode, config.muon_coefficient_type);
  below_one("muon_moment2_beta2", config.muon_moment2_beta2);
  range("muon_moment2_eps", config.muon_moment2_eps,
        config.muon_moment2_eps > 0.0 && std::isfinite(config.muon_moment2_eps),
        "finite numbers above 0");
  if (!config.muon_hyperball) return;
  const char* why =
      "{0}muon_hyperball sets the size of every update by its matrix' norm: {0}{1} "
      "would do nothing; leave it out";
  check(!config.muon_match_adamw_update_rms, fmt::runtime(why), prefix,
        "muon_match_adamw_update_rms");
  check(config.muon_scale_mode == "spectral", fmt::runtime(why), prefix, "muon_scale_mode");
  check(config.muon_extra_scale_factor == 1.0, fmt::runtime(why), prefix,
        "muon_extra_scale_factor");
  check(config.weight_decay == 0.0 && config.end_weight_decay.value_or(0.0) == 0.0 &&
            config.start_weight_decay.value_or(0.0) == 0.0,
        "{0}muon_hyperball keeps every matrix at its norm, which weight decay would only shrink in "
        "vain: set {0}weight_decay=0 (and {0}adam_weight_decay for the others)",
        prefix);
}

}  // namespace

bool uses_muon(const OptimizerConfig& config, const std::string& prefix) {
  const std::string& name = config.optimizer;
  check(std::find(kOthers.begin(), kOthers.end(), name) == kOthers.end(),
        "{}optimizer: {} is not supported: allowed are muon, adam, adamw", prefix, name);
  check_choice(prefix + "optimizer", name, {"muon", "adam", "adamw"});
  return name == "muon";
}

void validate(const OptimizerConfig& config, const std::string& prefix) {
  const Checker checker{config, prefix};
  const bool muon = uses_muon(config, prefix);
  checker.base();
  if (!muon) return checker.adam_only();
  checker.scalar_part();
  checker.muon();
}

MuonOptions muon_options(const OptimizerConfig& c, const std::string& prefix) {
  MuonOptions out(c.lr);
  out.momentum(c.muon_momentum)
      .momentum_kind(c.muon_momentum_kind)
      .nesterov(c.muon_nesterov)
      .weight_decay(c.weight_decay)
      .weight_decay_method(c.muon_weight_decay_method)
      .coefficient_type(c.muon_coefficient_type)
      .custom_coefficients(c.muon_custom_coefficients)
      .custom_iteration_mode(c.muon_custom_iteration_mode)
      .num_ns_steps(c.muon_num_ns_steps)
      .fp32_matmul_prec(c.muon_fp32_matmul_prec)
      .ns_eps(c.muon_ns_eps)
      .pre_transform(c.muon_pre_transform)
      .post_transform(c.muon_post_transform)
      .moment2_method(c.muon_moment2_method)
      .beta2(c.muon_moment2_beta2)
      .moment2_eps(c.muon_moment2_eps)
      .hyperball(c.muon_hyperball)
      .align_update_rms(c.muon_align_update_rms)
      .scale_mode(c.muon_scale_mode)
      .extra_scale_factor(resolved_extra_scale_factor(c, prefix))
      .stochastic_rounding(c.muon_bf16_params == "stochastic")
      .seed(c.seed);
  if (c.muon_match_adamw_update_rms && c.muon_match_adamw_update_rms_mode != "stationary")
    out.adamw_match(c.muon_match_adamw_update_rms_mode)
        .match_betas({c.betas[0], c.betas[1]})
        .match_eps(c.adam_eps);
  return out;
}

std::string scalar_optimizer(const OptimizerConfig& config) {
  return uses_muon(config) && config.muon_scalar_optimizer == "lion" ? "lion" : "adam";
}

double resolved_extra_scale_factor(const OptimizerConfig& config, const std::string& prefix) {
  if (!config.muon_match_adamw_update_rms) return config.muon_extra_scale_factor;
  const std::string match = prefix + "muon_match_adamw_update_rms";
  check(config.muon_extra_scale_factor == 1.0,
        "{0} computes the factor itself: it contradicts {1}muon_extra_scale_factor: {2}; set "
        "exactly one of the two",
        match, prefix, config.muon_extra_scale_factor);
  check(config.muon_scale_mode == "spectral",
        "{} holds for {}muon_scale_mode: spectral only, not {}", match, prefix,
        config.muon_scale_mode);
  const std::string& moment2 = config.muon_moment2_method;
  const bool aligned = config.muon_align_update_rms;
  check(aligned || moment2 == "none" || moment2 == "normuon",
        "{0} holds where an update keeps its norm: {1}muon_moment2_method: {2} does not (but with "
        "{1}muon_align_update_rms)",
        match, prefix, moment2);
  const std::string& post = config.muon_post_transform;
  check(aligned || post == "none" || post == "frobenius",
        "{0} holds where an update keeps its norm: {1}muon_post_transform: {2} does not (but with "
        "{1}muon_align_update_rms)",
        match, prefix, post);
  if (config.muon_match_adamw_update_rms_mode != "stationary") return 1.0;
  return muoncore::muon::adamw_rms_match_scale_factor(config.betas[0]);
}

SchedulerOptions scheduler_options(const OptimizerConfig& config, const std::string& prefix) {
  check(config.total_training_steps >= 1,
        "{}total_training_steps: {}: a schedule needs at least one step", prefix,
        config.total_training_steps);
  const double ratio = config.lr_warmup_steps_ratio;
  check(ratio >= 0.0 && ratio < 1.0,
        "{}lr_warmup_steps_ratio: {}: allowed are numbers from 0 to below 1", prefix, ratio);
  SchedulerOptions options;
  options.lr_warmup_init = config.lr_warmup_init;
  options.lr_decay_steps = config.lr_decay_steps.value_or(config.total_training_steps);
  options.lr_warmup_steps =
      config.lr_warmup_steps > 0
          ? config.lr_warmup_steps
          : static_cast<int64_t>(ratio * static_cast<double>(options.lr_decay_steps));
  options.lr_decay_style = config.lr_decay_style;
  options.lr_wsd_decay_style = config.lr_wsd_decay_style;
  options.lr_wsd_decay_steps = config.lr_wsd_decay_steps;
  options.start_wd = config.start_weight_decay.value_or(config.weight_decay);
  options.end_wd = config.end_weight_decay.value_or(config.weight_decay);
  options.wd_incr_steps = config.total_training_steps;
  options.wd_incr_style = config.weight_decay_incr_style;
  validate(options, prefix);
  return options;
}

}  // namespace muoncore::optim
