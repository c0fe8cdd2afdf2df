#include "muoncore/models/qk_clip.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "muoncore/core/check.h"
#include "muoncore/models/causal_lm.h"

namespace muoncore::models {
namespace {

constexpr int64_t kQueryBlock = 256;  // bounds the logits that are held at once

// The largest logit of each head over queries first..last-1 of one row, each with the keys up to
// its own. q [heads, tokens, head_dim], k [kv_heads, tokens, head_dim]; [heads].
at::Tensor largest_in_block(const at::Tensor& q, const at::Tensor& k, int64_t first, int64_t last) {
  const int64_t heads = q.size(0), kv_heads = k.size(0), width = q.size(2), count = last - first;
  at::Tensor queries =
      q.narrow(1, first, count).reshape({kv_heads, heads / kv_heads * count, width});
  at::Tensor logits = at::bmm(queries, k.narrow(1, 0, last).transpose(1, 2))
                          .view({heads, count, last})
                          .div_(std::sqrt(static_cast<double>(width)));
  const auto indices = q.options().dtype(at::kLong);
  at::Tensor later = at::arange(last, indices) > at::arange(first, last, indices).unsqueeze(1);
  return at::amax(logits.masked_fill_(later, -std::numeric_limits<double>::infinity()), {1, 2});
}

// min(1, tau / S) of each head of one layer, checked.
std::vector<double> gammas(const at::Tensor& largest, int64_t layer, double tau,
                           QkClipResult& result) {
  std::vector<double> out;
  const double* logits = largest.const_data_ptr<double>() + layer * largest.size(1);
  for (int64_t head = 0; head < largest.size(1); ++head) {
    const double logit = logits[head];
    check(!std::isnan(logit) && logit != std::numeric_limits<double>::infinity(),
          "QK-clip: the largest attention logit of layer {}, head {} is {}", layer, head, logit);
    result.largest_logit = std::max(result.largest_logit, logit);
    result.clipped_heads += logit > tau;
    out.push_back(logit > tau ? tau / logit : 1.0);
  }
  return out;
}

at::Tensor repeat_rows(const std::vector<double>& factors, int64_t rows_each) {
  at::Tensor out = at::ones({static_cast<int64_t>(factors.size()), rows_each}, at::kDouble);
  for (size_t i = 0; i < factors.size(); ++i)
    out.select(0, static_cast<int64_t>(i)).fill_(factors[i]);
  return out.view({-1});
}

struct LayerClip {
  const ModelConfig& config;
  std::string prefix;  // "model.layers.3.self_attn."
  const ScaleRows& scale_rows;

  void norms(double gamma) const;
  void projections(const std::vector<double>& gamma) const;
  void projection(const std::string& name, const std::vector<double>& factors) const;
};

void LayerClip::norms(double gamma) const {
  if (gamma == 1.0) return;
  for (const char* name : {"q_norm.weight", "k_norm.weight"})
    scale_rows(prefix + name, repeat_rows({std::sqrt(gamma)}, config.head_dim));
}

void LayerClip::projection(const std::string& name, const std::vector<double>& factors) const {
  if (std::all_of(factors.begin(), factors.end(), [](double f) { return f == 1.0; })) return;
  const at::Tensor rows = repeat_rows(factors, config.head_dim);
  scale_rows(prefix + name + ".weight", rows);
  if (config.qkv_bias) scale_rows(prefix + name + ".bias", rows);
}

void LayerClip::projections(const std::vector<double>& gamma) const {
  const size_t shared = gamma.size() / static_cast<size_t>(config.num_key_value_heads);
  std::vector<double> queries, keys;
  for (size_t first = 0; first < gamma.size(); first += shared) {
    const auto begin = gamma.begin() + static_cast<std::ptrdiff_t>(first);
    const double mildest = *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(shared));
    keys.push_back(std::sqrt(mildest));
    for (size_t head = first; head < first + shared; ++head)
      queries.push_back(gamma[head] / keys.back());
  }
  projection("q_proj", queries);
  projection("k_proj", keys);
}

}  // namespace

LogitWatch::LogitWatch(CausalLM& model) : model_(model) {
  model_.set_watch(this);
  const auto params = model_.parameters();
  const bool wide = model_.dtype() == at::kDouble;
  largest_ = at::full({model_.config().num_hidden_layers, model_.config().num_attention_heads},
                      -std::numeric_limits<double>::infinity(),
                      params.front().options().dtype(wide ? at::kDouble : at::kFloat));
}

LogitWatch::~LogitWatch() { model_.set_watch(nullptr); }

void LogitWatch::note(int64_t layer, const at::Tensor& q, const at::Tensor& k) {
  const at::NoGradGuard no_grad;
  const int64_t rows = q.size(0), tokens = q.size(2);
  check(lengths_.empty() || static_cast<int64_t>(lengths_.size()) == rows,
        "LogitWatch: {} lengths for a forward of {} rows", lengths_.size(), rows);
  at::Tensor largest = largest_.select(0, layer);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t real = lengths_.empty() ? tokens : std::min(lengths_[row], tokens);
    const at::Tensor queries = q.select(0, row).to(largest_.scalar_type());
    const at::Tensor keys = k.select(0, row).to(largest_.scalar_type());
    for (int64_t first = 0; first < real; first += kQueryBlock)
      largest.copy_(at::maximum(
          largest, largest_in_block(queries, keys, first, std::min(first + kQueryBlock, real))));
  }
}

QkClipResult apply_qk_clip(const ModelConfig& config, const at::Tensor& largest, double tau,
                           const ScaleRows& scale_rows) {
  check(tau > 0.0 && std::isfinite(tau), "QK-clip: tau must be above 0, got {}", tau);
  check(largest.dim() == 2 && largest.size(0) == config.num_hidden_layers &&
            largest.size(1) == config.num_attention_heads,
        "QK-clip: the largest logits must be [{} layers, {} heads]", config.num_hidden_layers,
        config.num_attention_heads);
  const at::Tensor logits = largest.to(at::kCPU, at::kDouble).contiguous();
  QkClipResult result{.largest_logit = -std::numeric_limits<double>::infinity()};
  std::vector<std::vector<double>> layers;
  for (int64_t layer = 0; layer < logits.size(0); ++layer)
    layers.push_back(gammas(logits, layer, tau, result));
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const LayerClip clip{config, fmt::format("model.layers.{}.self_attn.", layer), scale_rows};
    if (config.qk_norm)
      clip.norms(*std::min_element(layers[layer].begin(), layers[layer].end()));
    else
      clip.projections(layers[layer]);
  }
  return result;
}

ScaleRows scale_rows_of(const CausalLM& model) {
  return [&model](const std::string& name, const at::Tensor& factors) {
    const at::NoGradGuard no_grad;
    const at::Tensor param = model.named_parameters()[name];
    const at::Tensor rows = factors.to(param.device());
    const at::Tensor scaled = param.to(at::kDouble) * (param.dim() == 1 ? rows : rows.unsqueeze(1));
    param.copy_(scaled);
  };
}

}  // namespace muoncore::models
