// What a decoder-only transformer is made of: read from a Hugging Face config.json, or built from
// values. Keys and their meaning: transformers' LlamaConfig, Qwen2Config, Qwen3Config; facts in
// reference/rl.md 4.4.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muoncore::models {

enum class RopeType { kDefault, kLinear, kLlama3, kYarn };

// How rotary frequencies are stretched. Formulas: models/rope.h.
struct RopeScaling {
  RopeType type = RopeType::kDefault;
  double factor = 1.0;                                                     // linear, llama3, yarn
  double low_freq_factor = 1.0, high_freq_factor = 4.0;                    // llama3
  std::optional<int64_t> original_max_position_embeddings = std::nullopt;  // llama3, yarn
  double beta_fast = 32.0, beta_slow = 1.0;                                // yarn
  std::optional<double> attention_factor = std::nullopt, mscale = std::nullopt,
                        mscale_all_dim = std::nullopt;  // yarn
  bool truncate = true;                                 // yarn
  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  std::string model_type = "qwen3";  // "llama" (also SmolLM2), "qwen2", "qwen3"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // divides num_attention_heads
  int64_t head_dim = 0;             // even
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;     // llama, qwen3: attention_bias; qwen2: always
  bool output_bias = false;  // llama, qwen3: attention_bias; qwen2: never
  bool mlp_bias = false;     // llama
  bool qk_norm = true;       // qwen3: always; others: never
  double initializer_range = 0.02;
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::string dtype = "float32";  // of the weights in a folder: "float32", "bfloat16", "float16"

  int64_t parameter_count() const;
  bool operator==(const ModelConfig&) const = default;
};

// Throws Error, naming key and value, when the sizes do not fit together or the flags are not the
// model type's.
void validate(const ModelConfig& config, std::string_view label = "model");

// Reads the keys of config.json; `label` (the file) names it in errors. Old and new key names are
// read (rope_theta and rope_scaling, or rope_parameters). Throws Error, naming the key, on: a
// missing or mistyped key, another model type, rope type or activation, a sliding window in use,
// quantized weights.
ModelConfig config_from_json(const nlohmann::json& json, std::string_view label);

// config.json as transformers 5 reads it, and 4 too: both spellings of rope and dtype are written.
nlohmann::json config_to_json(const ModelConfig& config);

}  // namespace muoncore::models
