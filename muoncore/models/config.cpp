#include "muoncore/models/config.h"

#include <fmt/ranges.h>

#include "muoncore/core/check.h"
#include "muoncore/models/json_fields.h"
#include "muoncore/models/rope_config.h"

namespace muoncore::models {
namespace {

using nlohmann::json;

struct Family {
  const char* model_type;
  const char* architecture;
  bool qk_norm;
  bool always_qkv_bias;  // and never an output bias
  bool mlp_bias_key;     // whether the family knows the key mlp_bias
  int64_t max_position;  // transformers' default
  int64_t head_dim;      // transformers' default; 0: hidden_size / num_attention_heads
};
constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", false, false, true, 2048, 0},
    {"qwen2", "Qwen2ForCausalLM", false, true, false, 32768, 0},
    {"qwen3", "Qwen3ForCausalLM", true, false, false, 32768, 128},
};

const Family& family_of(const std::string& model_type, std::string_view label) {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) {
    if (model_type == family.model_type) return family;
    names.push_back(family.model_type);
  }
  std::string near = nearest_name(model_type, names);
  fail("{}: model_type \"{}\" is not supported; supported: {}{}", label, model_type,
       fmt::join(names, ", "), near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

void refuse_what_is_not_supported(const JsonFields& fields) {
  const std::string& label = fields.label();
  std::string act = fields.text("hidden_act", "silu");
  check(act == "silu", "{}: hidden_act \"{}\" is not supported; supported: silu", label, act);
  check(!fields.has("quantization_config"),
        "{}: quantized weights (quantization_config) are not supported; use the float checkpoint",
        label);
  // Qwen2 and Qwen3 configs always carry a sliding_window; only use_sliding_window puts it in use.
  check(!fields.flag("use_sliding_window", false),
        "{}: use_sliding_window true is not supported; only full attention is", label);
  if (const json* types = fields.find("layer_types"))
    for (const json& type : *types)
      if (type != "full_attention")
        fail("{}: layer_types contains {}; only \"full_attention\" is supported", label,
             type.dump());
  double dropout = fields.real("attention_dropout", 0.0);
  check(dropout == 0.0, "{}: attention_dropout {} is not supported; set it to 0", label, dropout);
  check(!fields.flag("rope_interleaved", false), "{}: rope_interleaved true is not supported",
        label);
}

void read_sizes(const JsonFields& fields, const Family& family, ModelConfig& config) {
  config.vocab_size = fields.integer("vocab_size");
  config.hidden_size = fields.integer("hidden_size");
  config.intermediate_size = fields.integer("intermediate_size");
  config.num_hidden_layers = fields.integer("num_hidden_layers");
  config.num_attention_heads = fields.integer("num_attention_heads");
  config.num_key_value_heads = fields.integer("num_key_value_heads", config.num_attention_heads);
  config.max_position_embeddings = fields.integer("max_position_embeddings", family.max_position);
  check(config.num_attention_heads > 0, "{}: num_attention_heads must be at least 1, found {}",
        fields.label(), config.num_attention_heads);
  auto head_dim = fields.optional_integer("head_dim");
  if (!head_dim && family.head_dim == 0) {
    check(config.hidden_size % config.num_attention_heads == 0,
          "{}: hidden_size {} is not a multiple of num_attention_heads {}, and head_dim is not set",
          fields.label(), config.hidden_size, config.num_attention_heads);
    head_dim = config.hidden_size / config.num_attention_heads;
  }
  config.head_dim = head_dim.value_or(family.head_dim);
}

std::string dtype_name(const JsonFields& fields) {
  std::string name = fields.text("dtype", fields.text("torch_dtype", "float32"));
  return name.starts_with("torch.") ? name.substr(6) : name;
}

std::vector<std::pair<const char*, int64_t>> named_sizes(const ModelConfig& c) {
  return {{"vocab_size", c.vocab_size},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_hidden_layers", c.num_hidden_layers},
          {"num_attention_heads", c.num_attention_heads},
          {"num_key_value_heads", c.num_key_value_heads},
          {"head_dim", c.head_dim},
          {"max_position_embeddings", c.max_position_embeddings}};
}

}  // namespace

void validate(const ModelConfig& config, std::string_view label) {
  const Family& family = family_of(config.model_type, label);
  for (auto [name, size] : named_sizes(config))
    check(size >= 1 && size <= INT32_MAX, "{}: {} must be between 1 and 2^31 - 1, found {}", label,
          name, size);
  check(config.num_attention_heads % config.num_key_value_heads == 0,
        "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", label,
        config.num_attention_heads, config.num_key_value_heads);
  check(config.head_dim % 2 == 0, "{}: head_dim {} must be even for rotary embeddings", label,
        config.head_dim);
  check(config.rms_norm_eps > 0 && config.rms_norm_eps < 1,
        "{}: rms_norm_eps must be between 0 and 1, found {}", label, config.rms_norm_eps);
  check(config.initializer_range >= 0 && config.initializer_range < 1e3,
        "{}: initializer_range must be at least 0, found {}", label, config.initializer_range);
  check(config.qk_norm == family.qk_norm, "{}: qk_norm must be {} for model_type {}", label,
        family.qk_norm, config.model_type);
  check(!config.mlp_bias || family.mlp_bias_key, "{}: mlp_bias is not part of model_type {}", label,
        config.model_type);
  bool biases_fit = family.always_qkv_bias ? config.qkv_bias && !config.output_bias
                                           : config.qkv_bias == config.output_bias;
  check(biases_fit, "{}: qkv_bias {} with output_bias {} is not a model of type {}", label,
        config.qkv_bias, config.output_bias, config.model_type);
  validate_rope(config, label);
}

int64_t ModelConfig::parameter_count() const {
  int64_t q = num_attention_heads * head_dim, kv = num_key_value_heads * head_dim;
  int64_t attention = hidden_size * (2 * q + 2 * kv) + qkv_bias * (q + 2 * kv) +
                      output_bias * hidden_size + qk_norm * 2 * head_dim;
  int64_t mlp =
      3 * hidden_size * intermediate_size + mlp_bias * (2 * intermediate_size + hidden_size);
  int64_t embeddings = vocab_size * hidden_size * (tie_word_embeddings ? 1 : 2);
  return num_hidden_layers * (attention + mlp + 2 * hidden_size) + embeddings + hidden_size;
}

ModelConfig config_from_json(const json& object, std::string_view label) {
  JsonFields fields(object, std::string(label));
  check(fields.has("model_type"), "{}: model_type is missing", label);
  const Family& family = family_of(fields.text("model_type", ""), label);
  refuse_what_is_not_supported(fields);

  ModelConfig config;
  config.model_type = family.model_type;
  read_sizes(fields, family, config);
  read_rope(fields, config);
  config.rms_norm_eps = fields.real("rms_norm_eps", 1e-6);
  config.initializer_range = fields.real("initializer_range", 0.02);
  config.tie_word_embeddings = fields.flag("tie_word_embeddings", false);
  bool attention_bias = !family.always_qkv_bias && fields.flag("attention_bias", false);
  config.qkv_bias = attention_bias || family.always_qkv_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = fields.flag("mlp_bias", false);
  config.qk_norm = family.qk_norm;
  config.eos_token_ids = fields.integers("eos_token_id");
  config.bos_token_id = fields.optional_integer("bos_token_id");
  config.pad_token_id = fields.optional_integer("pad_token_id");
  config.dtype = dtype_name(fields);
  validate(config, label);
  return config;
}

json config_to_json(const ModelConfig& config) {
  const Family& family = family_of(config.model_type, "model");
  json out;
  out["architectures"] = json::array({family.architecture});
  out["model_type"] = config.model_type;
  for (auto [name, size] : named_sizes(config)) out[name] = size;
  out["rms_norm_eps"] = config.rms_norm_eps;
  out["initializer_range"] = config.initializer_range;
  out["hidden_act"] = "silu";
  out["attention_dropout"] = 0.0;
  out["tie_word_embeddings"] = config.tie_word_embeddings;
  if (!family.always_qkv_bias) out["attention_bias"] = config.qkv_bias;
  if (family.mlp_bias_key) out["mlp_bias"] = config.mlp_bias;
  out["use_cache"] = true;
  out["dtype"] = out["torch_dtype"] = config.dtype;
  write_rope(config, out);
  auto optional = [](const std::optional<int64_t>& id) { return id ? json(*id) : json(nullptr); };
  out["bos_token_id"] = optional(config.bos_token_id);
  out["pad_token_id"] = optional(config.pad_token_id);
  const auto& eos = config.eos_token_ids;
  out["eos_token_id"] = eos.empty() ? json(nullptr) : eos.size() == 1 ? json(eos[0]) : json(eos);
  return out;
}

}  // namespace muoncore::models
