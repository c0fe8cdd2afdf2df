// Checks across the optimizer's keys. What is refused silently nowhere: a key that the chosen
// optimizer does not have, a factor that is set twice, a schedule that cannot be.
#include <fmt/format.h>

#include <regex>

#include "muoncore/core/check.h"
#include "muoncore/muon/newton_schulz.h"
#include "muoncore/train/config_checks.h"
#include "muoncore/train/config_derived.h"

namespace muoncore::train {
namespace {

struct OptimizerCheck {
  const Config& config;
  std::string prefix;
  optim::OptimizerConfig settings;  // overrides applied; the run's length as far as it is known

  std::string key(const std::string& name) const { return prefix + "." + name; }
  const YamlNode& overrides() const { return config.node(key("override_optimizer_config")); }

  // Fails at the key that decides: Megatron's name under override_optimizer_config, or verl's.
  [[noreturn]] void fail_key(const std::string& name, const std::string& complaint,
                             const std::string& megatron_name = "") const {
    const std::string& inner = megatron_name.empty() ? name : megatron_name;
    if (const YamlNode* value = overrides().find(inner))
      fail("{}: key '{}.{}': value {}: {}", to_string(value->position),
           key("override_optimizer_config"), inner, to_flow_yaml(*value), complaint);
    fail_at(config, key(name), complaint);
  }

  void foreign_keys() const;
  void muon_factor() const;
  void schedule() const;
  void warmup() const;
  void coefficients() const;
  void decoupling() const;
  void routing() const;
  void precision() const;
};

// A key that only Muon has is accepted elsewhere where it changes nothing: at our default or at
// verl's.
void OptimizerCheck::foreign_keys() const {
  const std::string chosen = config.text(key("optimizer"));
  for (const Option& option : config.table().options()) {
    if (!option.path.starts_with(prefix + ".") || option.only_for.empty()) continue;
    const YamlNode& value = config.node(option.path);
    bool harmless = value.same_value(option.fallback) ||
                    (option.verl_default && value.same_value(*option.verl_default));
    if (option.only_for != chosen && !harmless)
      fail_at(config, option.path,
              fmt::format("{}: {} has no such key, {} has; set {}={}", key("optimizer"), chosen,
                          option.only_for, key("optimizer"), option.only_for));
    const YamlNode* inner = overrides().find(option.path.substr(prefix.size() + 1));
    if (inner && option.only_for != chosen && !inner->same_value(option.fallback) &&
        !(option.verl_default && inner->same_value(*option.verl_default)))
      fail("{}: key '{}.{}': value {}: {}: {} has no such key, {} has", to_string(inner->position),
           key("override_optimizer_config"), option.path.substr(prefix.size() + 1),
           to_flow_yaml(*inner), key("optimizer"), chosen, option.only_for);
  }
}

// The match derives the factor, for the spectral scale alone; a factor of 1.0 counts as not set.
void OptimizerCheck::muon_factor() const {
  if (!settings.muon_match_adamw_update_rms) return;
  const std::string match = key("muon_match_adamw_update_rms");
  if (settings.muon_extra_scale_factor != 1.0)
    fail_key("muon_extra_scale_factor",
             fmt::format("{} derives the factor from betas[0]; set one of the two", match));
  if (settings.muon_scale_mode != "spectral")
    fail_key("muon_scale_mode", fmt::format("{} holds for muon_scale_mode: spectral only", match));
}

void OptimizerCheck::schedule() const {
  if (settings.min_lr > settings.lr)
    fail_key("min_lr", fmt::format("it is above {}: {}", key("lr"), settings.lr));
  if (settings.lr_warmup_init > settings.lr)
    fail_key("lr_warmup_init", fmt::format("it is above {}: {}", key("lr"), settings.lr));
  double adam_lr = settings.adam_lr.value_or(settings.lr);
  if (settings.adam_min_lr.value_or(settings.min_lr) > adam_lr)
    fail_key(settings.adam_min_lr ? "adam_min_lr" : "adam_lr",
             settings.adam_min_lr ? fmt::format("it is above adam_lr: {}", adam_lr)
                                  : fmt::format("it is below min_lr: {}", settings.min_lr));
  if (settings.lr_warmup_init > adam_lr)
    fail_key("adam_lr",
             fmt::format("it is below {}: {}", key("lr_warmup_init"), settings.lr_warmup_init));
  double start = settings.start_weight_decay.value_or(settings.weight_decay);
  double end = settings.end_weight_decay.value_or(settings.weight_decay);
  if (settings.weight_decay_incr_style == "constant" && start != end)
    fail_key("weight_decay_incr_style",
             fmt::format("weight decay goes from {} to {}; set linear or cosine", start, end));
  if (settings.lr_decay_style == "WSD" && !settings.lr_wsd_decay_steps)
    fail_key("lr_decay_style",
             fmt::format("it needs {}, which is null", key("lr_wsd_decay_steps")));
  if (settings.lr_decay_style != "WSD" && settings.lr_wsd_decay_steps)
    fail_key("lr_wsd_decay_steps", fmt::format("{}: {} does not use it; WSD does",
                                               key("lr_decay_style"), settings.lr_decay_style));
}

// As far as the length of the schedule is known: lr_decay_steps, else the run's.
void OptimizerCheck::warmup() const {
  bool own = settings.lr_decay_steps.has_value();
  int64_t decay = settings.lr_decay_steps.value_or(settings.total_training_steps);
  if (decay < 1) return;
  const std::string length = own ? key("lr_decay_steps") : "trainer.total_training_steps";
  if (settings.lr_warmup_steps >= decay)
    fail_key("lr_warmup_steps",
             fmt::format("the warm-up must be shorter than {}: {}", length, decay));
  if (settings.lr_wsd_decay_steps && *settings.lr_wsd_decay_steps > decay)
    fail_key("lr_wsd_decay_steps",
             fmt::format("the last phase of WSD is longer than {}: {}", length, decay));
}

void OptimizerCheck::coefficients() const {
  muon::NewtonSchulzOptions options;
  options.coefficient_type = settings.muon_coefficient_type;
  options.steps = settings.muon_num_ns_steps;
  const std::vector<double>& custom = settings.muon_custom_coefficients;
  if (custom.size() % 3 != 0)
    fail_key(
        "muon_custom_coefficients",
        fmt::format("{} numbers are not a multiple of 3 (a, b, c of each step)", custom.size()));
  for (size_t i = 0; i < custom.size(); i += 3)
    options.custom_coefficients.push_back({custom[i], custom[i + 1], custom[i + 2]});
  options.custom_mode = muon::parse_iteration_mode(settings.muon_custom_iteration_mode);
  try {
    muon::resolve_coefficients(options);
  } catch (const Error& error) {
    fail_key("muon_coefficient_type", fmt::format("with {}: {}: {}", key("muon_num_ns_steps"),
                                                  settings.muon_num_ns_steps, error.what()));
  }
}

// Megatron leaves Muon decoupled whatever decoupled_weight_decay says, and does not say so.
void OptimizerCheck::decoupling() const {
  const YamlNode* value = overrides().find("decoupled_weight_decay");
  if (!value || value->boolean || settings.optimizer != "muon") return;
  fail_key("decoupled_weight_decay",
           fmt::format("it does not say which optimizer it means: set {}=False for AdamW and {}=l2 "
                       "for Muon",
                       key("adam_decoupled_weight_decay"), key("muon_weight_decay_method")));
}

void OptimizerCheck::routing() const {
  for (const auto& [pattern, optimizer] : config.node(key("routing_rules")).fields) {
    if (optimizer.text != "muon" && optimizer.text != "adam")
      fail("{}: key '{}.{}': value {}; allowed: muon, adam", to_string(optimizer.position),
           key("routing_rules"), pattern, to_flow_yaml(optimizer));
    try {
      std::regex compiled(pattern, std::regex::ECMAScript);
    } catch (const std::regex_error& error) {
      fail("{}: key '{}.{}': its name is no regular expression: {}", to_string(optimizer.position),
           key("routing_rules"), pattern, error.what());
    }
  }
}

void OptimizerCheck::precision() const {
  const std::string dtype = config.engine_prefix() + ".dtype";
  if (config.text(dtype) != "float16") return;
  if (settings.optimizer == "muon")
    fail_at(config, dtype,
            fmt::format("{}: muon does not work in fp16; allowed: float32, bfloat16",
                        key("optimizer")));
  fail_at(config, dtype, "not supported: fp16 needs loss scaling; allowed: float32, bfloat16");
}

}  // namespace

void check_optimizer(const Config& config) {
  const bool known = !config.is_null("trainer.total_training_steps");
  const int64_t steps = known ? config.integer("trainer.total_training_steps") : -1;
  OptimizerCheck check{config, config.optim_prefix(), optimizer_config(config, steps)};
  check.foreign_keys();
  check.routing();
  check.decoupling();
  check.muon_factor();
  check.schedule();
  check.warmup();
  check.precision();
  if (check.settings.optimizer == "muon") check.coefficients();
  optim::validate(check.settings, check.prefix + ".");
}

}  // namespace muoncore::train
