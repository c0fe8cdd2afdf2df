// QK-clip (MuonClip: Kimi K2, arXiv 2507.20534, section 2.1): after an optimizer step, a head whose
// largest attention logit S (q . k / sqrt(head_dim), before the softmax, over the batch of that
// step) exceeded tau shrinks its query and key weights so that its logits are multiplied by
//   gamma = min(1, tau / S),   each of the two by sqrt(gamma).
// Logits are bilinear in the query and key weights (with their biases), so the clipped layer's
// logits on the same input are gamma times what they were, exactly but for rounding. Negative and
// small logits leave gamma at 1.
//
// Shared keys (grouped-query attention), where the paper has none: a key head is scaled by the
// sqrt(gamma) of its mildest query head, and each query head by what is left of its own gamma. So
// no weight ever grows, a query head below tau keeps its bytes, and so does a key head as long as
// one of its query heads is below tau.
//
// With q and k norms (Qwen3) logits do not depend on the size of the query and key weights. The
// norms' scales decide them, and all heads of a layer share these: both are multiplied by the
// sqrt(gamma) of the layer's worst head, which lowers the layer's other heads too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "muoncore/models/config.h"

namespace muoncore::models {

class CausalLM;

// Notes the largest attention logit of every head over the forwards that its model makes without a
// cache, from its construction to its end; nothing is computed when no watch stands. One at a time
// per model (a second one throws Error). Takes one more product q k^T per layer, a block of queries
// at a time.
class LogitWatch {
 public:
  explicit LogitWatch(CausalLM& model);
  ~LogitWatch();
  LogitWatch(const LogitWatch&) = delete;
  LogitWatch& operator=(const LogitWatch&) = delete;

  // Of each row of the next forwards, how many tokens are real; what pads them is not counted.
  // Empty (as at the start): all.
  void set_lengths(std::vector<int64_t> lengths) { lengths_ = std::move(lengths); }

  // [layers, heads], fp32 (fp64 for fp64 models); -infinity before the first forward.
  const at::Tensor& largest() const { return largest_; }

  // Attention calls it. q [rows, heads, tokens, head_dim], k [rows, kv_heads, tokens, head_dim], as
  // they enter the product; token t sees 0..t.
  void note(int64_t layer, const at::Tensor& q, const at::Tensor& k);

 private:
  CausalLM& model_;
  std::vector<int64_t> lengths_;
  at::Tensor largest_;
};

struct QkClipResult {
  double largest_logit = 0.0;  // of all heads, before the clip
  int64_t clipped_heads = 0;   // query heads whose logit was above tau
};

// Multiplies the rows of parameter `name` by `factors` [rows], fp64 on the CPU: where the weights
// truly live (an optimizer's fp32 masters), not only in the model.
using ScaleRows = std::function<void(const std::string& name, const at::Tensor& factors)>;

// `largest` [layers, heads], as LogitWatch has it. Throws Error unless tau > 0 and no entry is NaN
// or +infinity, before anything is scaled. Each layer's q_proj and k_proj (weight and, where there
// is one, bias) or q_norm and k_norm go through `scale_rows` once, and only where a factor is
// not 1.
QkClipResult apply_qk_clip(const ModelConfig& config, const at::Tensor& largest, double tau,
                           const ScaleRows& scale_rows);

// On the model's own parameters, for training without an optimizer that holds masters.
ScaleRows scale_rows_of(const CausalLM& model);

}  // namespace muoncore::models
