// One layer of the decoder: attention and MLP, each behind a norm and around a residual.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "muoncore/models/kv_cache.h"
#include "muoncore/models/layers.h"
#include "muoncore/models/rope.h"

namespace muoncore::models {

class LogitWatch;

// What all layers of one forward share.
struct ForwardContext {
  RopeTable::Angles angles;
  KvCache* cache = nullptr;  // nullptr: causal attention within the sequence
  int64_t visible = 0;       // with a cache: tokens that the longest row holds after this forward
  // with a cache: bool [rows, 1, T, visible], true where seen; undefined: see `causal`
  at::Tensor mask;
  LogitWatch* watch = nullptr;  // notes the logits of every head (qk_clip.h)
  bool causal = true;  // without a mask: causal, or everything seen (one token behind even rows)
};

// Grouped-query attention with rotary positions; scale head_dim^-1/2.
class Attention : public torch::nn::Module {
 public:
  Attention(const ModelConfig& config, int64_t layer, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x,
                     const ForwardContext& context) const;  // [B, T, hidden] -> the same
  void describe(const std::string& prefix, Specs& specs) const;

 private:
  at::Tensor heads(const Linear& projection, const RmsNorm* norm, const at::Tensor& x,
                   const ForwardContext& context) const;

  int64_t layer_, head_dim_;
  std::shared_ptr<Linear> q_, k_, v_, o_;
  std::shared_ptr<RmsNorm> q_norm_, k_norm_;
};

class DecoderLayer : public torch::nn::Module {
 public:
  DecoderLayer(const ModelConfig& config, int64_t layer, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;
  void describe(const std::string& prefix, Specs& specs) const;

 private:
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Mlp> mlp_;
  std::shared_ptr<RmsNorm> attention_norm_, mlp_norm_;
};

}  // namespace muoncore::models
