// Small configs for the tests of this room, one per family.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>

#include <memory>
#include <string>

#include "muoncore/models/causal_lm.h"

namespace muoncore::models {

inline ModelConfig toy_config(const std::string& model_type = "qwen3") {
  ModelConfig c;
  c.model_type = model_type;
  c.vocab_size = 37;
  c.hidden_size = 24;
  c.intermediate_size = 40;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 6;
  c.num_key_value_heads = 2;
  c.head_dim = 8;  // not hidden / heads
  c.max_position_embeddings = 64;
  c.qk_norm = model_type == "qwen3";
  c.qkv_bias = model_type == "qwen2";
  c.initializer_range = 0.2;  // large enough that logits differ well
  return c;
}

// Also norms and biases are made uneven, so that a test sees whether they are used.
inline std::shared_ptr<CausalLM> toy_model(const ModelConfig& config, uint64_t seed = 1,
                                           at::ScalarType dtype = at::kFloat) {
  auto model = std::make_shared<CausalLM>(config, dtype);
  model->init_weights(seed);
  c10::NoGradGuard no_grad;
  for (auto& [name, param] : model->named_params())
    if (param.dim() == 1) param.add_(at::linspace(-0.3, 0.4, param.numel(), param.options()));
  return model;
}

// Ids [rows, tokens] that depend on `seed` alone.
inline at::Tensor toy_ids(const ModelConfig& config, int64_t rows, int64_t tokens,
                          int64_t seed = 0) {
  at::Tensor n = at::arange(rows * tokens) + 1000 * seed;
  return (n * n * 7 + n * 13 + 5).remainder(config.vocab_size).view({rows, tokens});
}

}  // namespace muoncore::models
