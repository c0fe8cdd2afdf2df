#include "muoncore/models/decoder_layer.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include "muoncore/models/qk_clip.h"

namespace muoncore::models {

Attention::Attention(const ModelConfig& c, int64_t layer, at::TensorOptions options)
    : layer_(layer), head_dim_(c.head_dim) {
  int64_t q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  auto linear = [&](const char* name, int64_t in, int64_t out, bool bias) {
    return register_module(name, std::make_shared<Linear>(in, out, bias, options));
  };
  q_ = linear("q_proj", c.hidden_size, q, c.qkv_bias);
  k_ = linear("k_proj", c.hidden_size, kv, c.qkv_bias);
  v_ = linear("v_proj", c.hidden_size, kv, c.qkv_bias);
  o_ = linear("o_proj", q, c.hidden_size, c.output_bias);
  if (!c.qk_norm) return;
  auto norm = [&](const char* name) {
    return register_module(name, std::make_shared<RmsNorm>(c.head_dim, c.rms_norm_eps, options));
  };
  q_norm_ = norm("q_norm");
  k_norm_ = norm("k_norm");
}

// x [B, T, hidden] -> projected, normalized, rotated: [B, T, heads, head_dim].
at::Tensor Attention::heads(const Linear& projection, const RmsNorm* norm, const at::Tensor& x,
                            const ForwardContext& context) const {
  at::Tensor y = projection.forward(x).view({x.size(0), x.size(1), -1, head_dim_});
  if (norm) y = norm->forward(y);
  return apply_rope(y, context.angles);
}

at::Tensor Attention::forward(const at::Tensor& x, const ForwardContext& context) const {
  at::Tensor q = heads(*q_, q_norm_.get(), x, context).transpose(1, 2);
  at::Tensor k = heads(*k_, k_norm_.get(), x, context).transpose(1, 2);
  at::Tensor v = v_->forward(x).view({x.size(0), x.size(1), -1, head_dim_}).transpose(1, 2);
  if (context.cache) {
    context.cache->append(layer_, k, v);
    k = context.cache->keys(layer_, context.visible);
    v = context.cache->values(layer_, context.visible);
  }
  if (context.watch) context.watch->note(layer_, q, k);
  std::optional<at::Tensor> mask;
  if (context.mask.defined()) mask = context.mask;
  at::Tensor y = at::scaled_dot_product_attention(q, k, v, mask, /*dropout_p=*/0.0,
                                                  !mask && context.causal, /*scale=*/std::nullopt,
                                                  /*enable_gqa=*/true);
  return o_->forward(y.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
}

void Attention::describe(const std::string& prefix, Specs& specs) const {
  q_->describe(prefix + ".q_proj", specs);
  k_->describe(prefix + ".k_proj", specs);
  v_->describe(prefix + ".v_proj", specs);
  o_->describe(prefix + ".o_proj", specs);
  if (q_norm_) q_norm_->describe(prefix + ".q_norm", specs);
  if (k_norm_) k_norm_->describe(prefix + ".k_norm", specs);
}

DecoderLayer::DecoderLayer(const ModelConfig& c, int64_t layer, at::TensorOptions options) {
  attention_ = register_module("self_attn", std::make_shared<Attention>(c, layer, options));
  mlp_ = register_module("mlp", std::make_shared<Mlp>(c, options));
  auto norm = [&](const char* name) {
    return register_module(name, std::make_shared<RmsNorm>(c.hidden_size, c.rms_norm_eps, options));
  };
  attention_norm_ = norm("input_layernorm");
  mlp_norm_ = norm("post_attention_layernorm");
}

at::Tensor DecoderLayer::forward(const at::Tensor& x, const ForwardContext& context) const {
  at::Tensor y = x + attention_->forward(attention_norm_->forward(x), context);
  return y + mlp_->forward(mlp_norm_->forward(y));
}

void DecoderLayer::describe(const std::string& prefix, Specs& specs) const {
  attention_->describe(prefix + ".self_attn", specs);
  mlp_->describe(prefix + ".mlp", specs);
  attention_norm_->describe(prefix + ".input_layernorm", specs);
  mlp_norm_->describe(prefix + ".post_attention_layernorm", specs);
}

}  // namespace muoncore::models
