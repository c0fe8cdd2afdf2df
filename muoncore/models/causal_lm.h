// A decoder-only transformer: Llama, SmolLM2, Qwen2, Qwen3. Parameters carry Hugging Face's names.
//
// RMSNorm (Zhang, Sennrich, 2019) in fp32; grouped-query attention (Ainslie et al., 2023) with RoPE
// (Su et al., 2021) in the rotate-half form; SwiGLU (Shazeer, 2020); optional QK-norm, biases and
// tied embeddings.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muoncore/core/param_spec.h"
#include "muoncore/models/config.h"
#include "muoncore/models/kv_cache.h"
#include "muoncore/models/rope.h"

namespace muoncore::models {

class DecoderLayer;
class LogitWatch;
class RmsNorm;
struct ForwardContext;

class CausalLM : public torch::nn::Module {
 public:
  // Parameters are allocated, not initialized: call init_weights, or load into them. dtype: fp32,
  // bf16 (or fp64, for gradient checks). Throws Error as validate().
  explicit CausalLM(ModelConfig config, at::ScalarType dtype = at::kFloat,
                    at::Device device = at::kCPU);
  ~CausalLM() override;

  const ModelConfig& config() const { return config_; }
  at::ScalarType dtype() const { return embedding_.scalar_type(); }

  // ids [B, T] int64 -> hidden states after the last norm, [B, T, hidden], in the model's dtype.
  // Token t of a row sees tokens 0..t of that row, so sequences are right-padded and what stands in
  // the padding is never seen by a real token. With a cache (no gradients): the row's tokens so far
  // come before, and the cache grows by T tokens a row. Throws Error when ids is not [B, T] int64
  // in the vocabulary (on a GPU the range is left to the kernel), or the cache has other rows or no
  // room.
  at::Tensor forward_hidden(const at::Tensor& ids, KvCache* cache = nullptr);

  // hidden [..., hidden] -> [..., vocab], in the model's dtype.
  at::Tensor logits(const at::Tensor& hidden);

  // In the order of named_parameters(), as are the parameters themselves.
  const std::vector<ParamSpec>& param_specs() const { return specs_; }
  std::vector<std::pair<std::string, at::Tensor>> named_params() const;

  // Whom forwards without a cache tell their attention logits; nullptr: nobody. LogitWatch calls
  // it. Throws Error when another one is told already.
  void set_watch(LogitWatch* watch);

  // In place: matrices and embeddings normal(0, initializer_range), each value a function of (seed,
  // parameter name, index) alone; norms 1, biases 0.
  void init_weights(uint64_t seed);

 private:
  void check_ids(const at::Tensor& ids) const;
  void see_cache(const at::Tensor& ids, ForwardContext& context) const;

  ModelConfig config_;
  at::Tensor embedding_, head_;  // the same tensor when tied
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
  std::shared_ptr<RmsNorm> norm_;
  RopeTable rope_;
  std::vector<ParamSpec> specs_;
  LogitWatch* watch_ = nullptr;
};

}  // namespace muoncore::models
