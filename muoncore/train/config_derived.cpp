#include "muoncore/train/config_derived.h"

#include <functional>
#include <map>

#include "muoncore/core/check.h"
#include "muoncore/train/config_layouts.h"

namespace muoncore::train {
namespace {

// Reads the keys of one optimizer tree.
struct OptimReader {
  const Config& config;
  std::string prefix;

  std::string key(const char* name) const { return prefix + "." + name; }
  double real(const char* name) const { return config.real(key(name)); }
  int64_t integer(const char* name) const { return config.integer(key(name)); }
  bool flag(const char* name) const { return config.flag(key(name)); }
  std::string text(const char* name) const { return config.text(key(name)); }
  std::optional<double> maybe_real(const char* name) const {
    if (config.is_null(key(name))) return std::nullopt;
    return real(name);
  }
  std::optional<int64_t> maybe_integer(const char* name) const {
    if (config.is_null(key(name))) return std::nullopt;
    return integer(name);
  }
};

void read_schedule(const OptimReader& in, optim::OptimizerConfig& out) {
  out.optimizer = in.text("optimizer") == "muon" ? "muon" : "adam";
  out.lr = in.real("lr");
  out.min_lr = in.real("min_lr");
  out.weight_decay = in.real("weight_decay");
  std::vector<double> betas = in.config.reals(in.key("betas"));
  out.betas = {betas[0], betas[1]};
  out.adam_eps = in.real("adam_eps");
  out.clip_grad = in.real("clip_grad");
  out.lr_warmup_init = in.real("lr_warmup_init");
  out.lr_warmup_steps = in.maybe_integer("lr_warmup_steps").value_or(-1);
  out.lr_warmup_steps_ratio = in.real("lr_warmup_steps_ratio");
  out.lr_decay_steps = in.maybe_integer("lr_decay_steps");
  out.lr_decay_style = in.text("lr_decay_style");
  out.weight_decay_incr_style = in.text("weight_decay_incr_style");
  out.start_weight_decay = in.maybe_real("start_weight_decay");
  out.end_weight_decay = in.maybe_real("end_weight_decay");
  out.lr_wsd_decay_style = in.text("lr_wsd_decay_style");
  out.lr_wsd_decay_steps = in.maybe_integer("lr_wsd_decay_steps");
}

void read_muon(const OptimReader& in, optim::OptimizerConfig& out) {
  out.muon_momentum = in.real("muon_momentum");
  out.muon_nesterov = in.flag("muon_nesterov");
  out.muon_split_qkv = in.flag("muon_split_qkv");
  out.muon_scale_mode = in.text("muon_scale_mode");
  out.muon_coefficient_type = in.text("muon_coefficient_type");
  out.muon_num_ns_steps = in.integer("muon_num_ns_steps");
  out.muon_tp_mode = in.text("muon_tp_mode");
  out.muon_fp32_matmul_prec = in.text("muon_fp32_matmul_prec");
  out.muon_ns_impl = in.text("muon_ns_impl");
  out.muon_extra_scale_factor = in.real("muon_extra_scale_factor");
  out.muon_scalar_optimizer = in.text("muon_scalar_optimizer");
  out.muon_match_adamw_update_rms = in.flag("muon_match_adamw_update_rms");
  out.muon_match_adamw_update_rms_mode = in.text("muon_match_adamw_update_rms_mode");
  out.muon_ns_eps = in.maybe_real("muon_ns_eps");
  out.lion_betas = {in.real("lion_beta1"), in.real("lion_beta2")};
  out.adam_decoupled_weight_decay = in.flag("adam_decoupled_weight_decay");
  out.adam_lr = in.maybe_real("adam_lr");
  out.adam_min_lr = in.maybe_real("adam_min_lr");
  out.adam_weight_decay = in.maybe_real("adam_weight_decay");
  out.muon_matrix_layouts =
      layout_rules(in.config.node(in.key("muon_matrix_layouts")), in.key("muon_matrix_layouts"));
  out.muon_qk_clip_tau = in.maybe_real("muon_qk_clip_tau");
  for (const auto& [pattern, optimizer] : in.config.node(in.key("routing_rules")).fields)
    out.routing_rules.push_back({pattern, optimizer.text});
}

void read_variants(const OptimReader& in, optim::OptimizerConfig& out) {
  out.muon_momentum_kind = in.text("muon_momentum_kind");
  out.muon_weight_decay_method = in.text("muon_weight_decay_method");
  out.muon_custom_coefficients = in.config.reals(in.key("muon_custom_coefficients"));
  out.muon_custom_iteration_mode = in.text("muon_custom_iteration_mode");
  out.muon_pre_transform = in.text("muon_pre_transform");
  out.muon_post_transform = in.text("muon_post_transform");
  out.muon_moment2_method = in.text("muon_moment2_method");
  out.muon_moment2_beta2 = in.real("muon_moment2_beta2");
  out.muon_moment2_eps = in.real("muon_moment2_eps");
  out.muon_hyperball = in.flag("muon_hyperball");
  out.muon_align_update_rms = in.flag("muon_align_update_rms");
  out.muon_bf16_params = in.text("muon_bf16_params");
  out.seed = in.config.integer("trainer.seed");
}

// override_optimizer_config: Megatron's names, the last word. Those that are missing here have one
// value only.
void apply_overrides(const YamlNode& overrides, optim::OptimizerConfig& out) {
  using Value = const YamlNode&;
  const std::map<std::string, std::function<void(Value)>> setters = {
      {"lr", [&](Value v) { out.lr = v.real; }},
      {"min_lr", [&](Value v) { out.min_lr = v.real; }},
      {"weight_decay", [&](Value v) { out.weight_decay = v.real; }},
      {"adam_beta1", [&](Value v) { out.betas[0] = v.real; }},
      {"adam_beta2", [&](Value v) { out.betas[1] = v.real; }},
      {"adam_eps", [&](Value v) { out.adam_eps = v.real; }},
      {"clip_grad", [&](Value v) { out.clip_grad = v.real; }},
      {"decoupled_weight_decay", [&](Value v) { out.adam_decoupled_weight_decay = v.boolean; }},
      {"lion_beta1", [&](Value v) { out.lion_betas[0] = v.real; }},
      {"lion_beta2", [&](Value v) { out.lion_betas[1] = v.real; }},
      {"muon_scalar_optimizer", [&](Value v) { out.muon_scalar_optimizer = v.text; }},
      {"muon_momentum", [&](Value v) { out.muon_momentum = v.real; }},
      {"muon_nesterov", [&](Value v) { out.muon_nesterov = v.boolean; }},
      {"muon_split_qkv", [&](Value v) { out.muon_split_qkv = v.boolean; }},
      {"muon_scale_mode", [&](Value v) { out.muon_scale_mode = v.text; }},
      {"muon_coefficient_type", [&](Value v) { out.muon_coefficient_type = v.text; }},
      {"muon_num_ns_steps", [&](Value v) { out.muon_num_ns_steps = v.integer; }},
      {"muon_tp_mode", [&](Value v) { out.muon_tp_mode = v.text; }},
      {"muon_fp32_matmul_prec", [&](Value v) { out.muon_fp32_matmul_prec = v.text; }},
      {"muon_extra_scale_factor", [&](Value v) { out.muon_extra_scale_factor = v.real; }},
  };
  for (const auto& [name, value] : overrides.fields)
    if (auto setter = setters.find(name); setter != setters.end()) setter->second(value);
}

// Where Muon's factor comes from; for bias_corrected and measured the number is one of each step.
std::string factor_source(const optim::OptimizerConfig& settings) {
  if (!settings.muon_match_adamw_update_rms) return "muon_extra_scale_factor";
  const std::string& mode = settings.muon_match_adamw_update_rms_mode;
  if (mode == "stationary") return "muon_match_adamw_update_rms and betas[0]";
  return "muon_match_adamw_update_rms, " + mode + ": times the factor of each step";
}

nlohmann::json muon_json(const optim::OptimizerConfig& settings) {
  return {{"extra_scale_factor", optim::resolved_extra_scale_factor(settings)},
          {"extra_scale_factor_from", factor_source(settings)},
          {"momentum_kind", settings.muon_momentum_kind},
          {"weight_decay_method", settings.muon_weight_decay_method},
          {"pre_transform", settings.muon_pre_transform},
          {"post_transform", settings.muon_post_transform},
          {"moment2_method", settings.muon_moment2_method},
          {"hyperball", settings.muon_hyperball},
          {"align_update_rms", settings.muon_align_update_rms},
          {"bf16_params", settings.muon_bf16_params},
          {"scalar_optimizer", settings.muon_scalar_optimizer},
          {"scale_mode", settings.muon_scale_mode},
          {"coefficient_type", settings.muon_coefficient_type},
          {"num_ns_steps", settings.muon_num_ns_steps},
          {"fp32_matmul_prec", settings.muon_fp32_matmul_prec},
          {"momentum", settings.muon_momentum},
          {"nesterov", settings.muon_nesterov},
          {"lr", settings.lr},
          {"weight_decay", settings.weight_decay}};
}

nlohmann::json schedule_json(const optim::OptimizerConfig& settings) {
  const optim::SchedulerOptions schedule = optim::scheduler_options(settings);
  return {{"lr_decay_style", schedule.lr_decay_style},
          {"lr_warmup_steps", schedule.lr_warmup_steps},
          {"lr_decay_steps", schedule.lr_decay_steps},
          {"start_weight_decay", schedule.start_wd},
          {"end_weight_decay", schedule.end_wd}};
}

}  // namespace

optim::OptimizerConfig optimizer_config(const Config& config, int64_t total_training_steps) {
  OptimReader in{config, config.optim_prefix()};
  optim::OptimizerConfig out;
  read_schedule(in, out);
  read_muon(in, out);
  read_variants(in, out);
  apply_overrides(config.node(in.key("override_optimizer_config")), out);
  out.total_training_steps = total_training_steps;
  return out;
}

nlohmann::json model_config_json(const Config& config, int64_t vocab_size) {
  const std::string prefix = config.model_prefix() + ".config.";
  auto integer = [&](const char* key) { return config.integer(prefix + key); };
  int64_t heads = integer("num_attention_heads");
  bool own_head_dim = !config.is_null(prefix + "head_dim");
  bool own_vocab = !config.is_null(prefix + "vocab_size");
  return {{"model_type", config.text(prefix + "model_type")},
          {"vocab_size", own_vocab ? integer("vocab_size") : vocab_size},
          {"hidden_size", integer("hidden_size")},
          {"intermediate_size", integer("intermediate_size")},
          {"num_hidden_layers", integer("num_hidden_layers")},
          {"num_attention_heads", heads},
          {"num_key_value_heads", integer("num_key_value_heads")},
          {"head_dim", own_head_dim ? integer("head_dim") : integer("hidden_size") / heads},
          {"max_position_embeddings", integer("max_position_embeddings")},
          {"rms_norm_eps", config.real(prefix + "rms_norm_eps")},
          {"rope_theta", config.real(prefix + "rope_theta")},
          {"tie_word_embeddings", config.flag(prefix + "tie_word_embeddings")},
          {"attention_bias", config.flag(prefix + "attention_bias")},
          {"initializer_range", config.real(prefix + "initializer_range")},
          {"hidden_act", "silu"}};
}

int64_t seed_of(const Config& config, const std::string& path) {
  return config.integer(config.is_null(path) ? "trainer.seed" : path);
}

nlohmann::json resolved_json(const Config& config, int64_t total_training_steps) {
  optim::OptimizerConfig settings = optimizer_config(config, total_training_steps);
  nlohmann::json json = {
      {"kind", to_string(config.kind())},
      {"total_training_steps", total_training_steps},
      {"optimizer", settings.optimizer},
      {"schedule", schedule_json(settings)},
      {"clip_grad", settings.clip_grad},
      {"adam",
       {{"lr", settings.adam_lr.value_or(settings.lr)},
        {"weight_decay", settings.adam_weight_decay.value_or(settings.weight_decay)},
        {"betas", {settings.betas[0], settings.betas[1]}},
        {"eps", settings.adam_eps}}}};
  if (settings.optimizer == "muon") json["muon"] = muon_json(settings);
  json["seeds"] = {{"trainer", config.integer("trainer.seed")},
                   {"model", seed_of(config, config.model_prefix() + ".init_seed")},
                   {"data", seed_of(config, "data.seed")}};
  if (config.kind() == ConfigKind::kGrpo)
    json["seeds"]["rollout"] = seed_of(config, "actor_rollout_ref.rollout.seed");
  return json;
}

}  // namespace muoncore::train
