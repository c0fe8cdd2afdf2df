#include "muoncore/models/rope_config.h"

#include <cmath>

#include "muoncore/core/check.h"

namespace muoncore::models {
namespace {

using nlohmann::json;

constexpr std::pair<const char*, RopeType> kTypes[] = {{"default", RopeType::kDefault},
                                                       {"linear", RopeType::kLinear},
                                                       {"llama3", RopeType::kLlama3},
                                                       {"yarn", RopeType::kYarn}};

RopeType rope_type(const JsonFields& fields) {
  std::string name = fields.text("rope_type", fields.text("type", "default"));
  for (auto [known, type] : kTypes)
    if (name == known) return type;
  fail("{}: rope_type \"{}\" is not supported; supported: default, linear, llama3, yarn",
       fields.label(), name);
}

const char* name_of(RopeType type) {
  for (auto [name, known] : kTypes)
    if (type == known) return name;
  fail("unknown rope type {}", static_cast<int>(type));
}

RopeScaling read_scaling(const JsonFields& fields, std::optional<int64_t> original_length) {
  RopeScaling scaling;
  scaling.type = rope_type(fields);
  if (scaling.type == RopeType::kDefault) return scaling;
  scaling.factor = fields.real("factor");
  if (scaling.type == RopeType::kLinear) return scaling;
  scaling.original_max_position_embeddings =
      original_length ? original_length
                      : fields.optional_integer("original_max_position_embeddings");
  if (scaling.type == RopeType::kLlama3) {
    scaling.low_freq_factor = fields.real("low_freq_factor");
    scaling.high_freq_factor = fields.real("high_freq_factor");
    return scaling;
  }
  scaling.beta_fast = fields.real("beta_fast", scaling.beta_fast);
  scaling.beta_slow = fields.real("beta_slow", scaling.beta_slow);
  scaling.attention_factor = fields.optional_real("attention_factor");
  scaling.mscale = fields.optional_real("mscale");
  scaling.mscale_all_dim = fields.optional_real("mscale_all_dim");
  scaling.truncate = fields.flag("truncate", true);
  return scaling;
}

// A file may say it in both spellings (ours do), but not two different things.
void check_agreement(const JsonFields& fields) {
  const json* now = fields.find("rope_parameters");
  const json* before = fields.find("rope_scaling");
  if (!now || !before || !now->is_object() || !before->is_object()) return;
  json left = *now, right = *before;
  left.erase("rope_theta");
  right.erase("rope_theta");
  check(left == right, "{}: rope_parameters and rope_scaling differ; leave one of them out",
        fields.label());
}

json scaling_to_json(const RopeScaling& s) {
  json out{{"rope_type", name_of(s.type)}};
  if (s.type == RopeType::kDefault) return out;
  out["factor"] = s.factor;
  if (s.original_max_position_embeddings)
    out["original_max_position_embeddings"] = *s.original_max_position_embeddings;
  if (s.type == RopeType::kLlama3) {
    out["low_freq_factor"] = s.low_freq_factor;
    out["high_freq_factor"] = s.high_freq_factor;
  }
  if (s.type == RopeType::kYarn) {
    out["beta_fast"] = s.beta_fast;
    out["beta_slow"] = s.beta_slow;
    out["truncate"] = s.truncate;
    if (s.attention_factor) out["attention_factor"] = *s.attention_factor;
    if (s.mscale) out["mscale"] = *s.mscale;
    if (s.mscale_all_dim) out["mscale_all_dim"] = *s.mscale_all_dim;
  }
  return out;
}

}  // namespace

void read_rope(const JsonFields& fields, ModelConfig& config) {
  check_agreement(fields);
  const char* key = fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const json none = json::object();
  const json* object = fields.find(key);
  JsonFields rope(object ? *object : none, fields.label() + ": " + key);
  for (const JsonFields* place : {&fields, static_cast<const JsonFields*>(&rope)}) {
    double partial = place->real("partial_rotary_factor", 1.0);
    check(partial == 1.0, "{}: partial_rotary_factor {} is not supported; only 1 is",
          place->label(), partial);
  }
  check(!rope.has("full_attention") && !rope.has("sliding_attention"),
        "{}: parameters per layer type are not supported", rope.label());
  config.rope_theta = rope.real("rope_theta", fields.real("rope_theta", 10000.0));
  config.rope_scaling =
      read_scaling(rope, fields.optional_integer("original_max_position_embeddings"));
}

void write_rope(const ModelConfig& config, json& out) {
  json scaling = scaling_to_json(config.rope_scaling);
  out["rope_theta"] = config.rope_theta;
  out["rope_scaling"] = config.rope_scaling.type == RopeType::kDefault ? json(nullptr) : scaling;
  out["rope_parameters"] = scaling;
  out["rope_parameters"]["rope_theta"] = config.rope_theta;
}

void validate_rope(const ModelConfig& config, std::string_view label) {
  const RopeScaling& s = config.rope_scaling;
  check(config.rope_theta > 1 && std::isfinite(config.rope_theta),
        "{}: rope_theta must be above 1, found {}", label, config.rope_theta);
  if (s.type == RopeType::kDefault) return;
  check(s.factor >= 1 && std::isfinite(s.factor), "{}: rope factor must be at least 1, found {}",
        label, s.factor);
  int64_t original = s.original_max_position_embeddings.value_or(config.max_position_embeddings);
  check(original >= 1, "{}: original_max_position_embeddings must be at least 1, found {}", label,
        original);
  if (s.type == RopeType::kLlama3)
    check(s.low_freq_factor > 0 && s.high_freq_factor > s.low_freq_factor,
          "{}: llama3 rope needs 0 < low_freq_factor < high_freq_factor, found {} and {}", label,
          s.low_freq_factor, s.high_freq_factor);
  if (s.type == RopeType::kYarn)
    check(s.beta_slow > 0 && s.beta_fast > s.beta_slow,
          "{}: yarn rope needs 0 < beta_slow < beta_fast, found {} and {}", label, s.beta_slow,
          s.beta_fast);
}

}  // namespace muoncore::models
