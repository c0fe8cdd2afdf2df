#include "muoncore/models/kv_cache.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::models {

KvCache::KvCache(const ModelConfig& config, int64_t rows, int64_t capacity, at::ScalarType dtype,
                 at::Device device)
    : lengths_(static_cast<size_t>(std::max<int64_t>(rows, 0)), 0), capacity_(capacity) {
  check(rows >= 1 && capacity >= 1,
        "a KV cache needs rows and capacity of at least 1, found {} and {}", rows, capacity);
  auto options = at::TensorOptions().dtype(dtype).device(device);
  auto make = [&] {
    return at::zeros({rows, config.num_key_value_heads, capacity, config.head_dim}, options);
  };
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers_.push_back({make(), make()});
}

int64_t KvCache::bytes() const {
  int64_t total = 0;
  for (const Layer& layer : layers_)
    total += static_cast<int64_t>(layer.keys.nbytes() + layer.values.nbytes());
  return total;
}

bool KvCache::even() const {
  return std::all_of(lengths_.begin(), lengths_.end(),
                     [&](int64_t length) { return length == lengths_[0]; });
}

void KvCache::set_lengths(std::vector<int64_t> lengths) {
  check(lengths.size() == lengths_.size(), "set_lengths: {} lengths for {} rows", lengths.size(),
        lengths_.size());
  for (size_t i = 0; i < lengths.size(); ++i)
    check(lengths[i] >= 0 && lengths[i] <= lengths_[i],
          "set_lengths: row {} holds {} tokens and cannot be set to {}", i, lengths_[i],
          lengths[i]);
  lengths_ = std::move(lengths);
}

void KvCache::repeat_interleave(int64_t n) {
  check(n >= 1, "repeat_interleave: {} copies of each row", n);
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < this->rows(); ++row) rows.insert(rows.end(), n, row);
  select(rows);
}

void KvCache::select(const std::vector<int64_t>& rows) {
  check(!rows.empty(), "select: a cache must keep at least one row");
  std::vector<int64_t> lengths;
  for (int64_t row : rows) {
    check(row >= 0 && row < this->rows(), "select: row {} of a cache with {} rows", row,
          this->rows());
    lengths.push_back(lengths_[static_cast<size_t>(row)]);
  }
  // Beyond what rows hold stand zeros or old values, never garbage: attention gives them weight 0,
  // and 0 * NaN is NaN.
  int64_t used = *std::max_element(lengths.begin(), lengths.end());
  at::Tensor index = at::tensor(rows, at::kLong).to(layers_[0].keys.device());
  auto pick = [&](const at::Tensor& from) {
    auto shape = from.sizes().vec();
    shape[0] = static_cast<int64_t>(rows.size());
    at::Tensor to = at::zeros(shape, from.options());
    to.narrow(2, 0, used).copy_(from.narrow(2, 0, used).index_select(0, index));
    return to;
  };
  for (Layer& layer : layers_) layer = {pick(layer.keys), pick(layer.values)};
  lengths_ = std::move(lengths);
}

void KvCache::append(int64_t layer, const at::Tensor& k, const at::Tensor& v) {
  int64_t tokens = k.size(2);
  for (int64_t length : lengths_)
    check(length + tokens <= capacity_,
          "KV cache is full: a row holds {} tokens, {} more do not fit into its capacity of {}",
          length, tokens, capacity_);
  Layer& to = layers_[static_cast<size_t>(layer)];
  if (even()) {
    to.keys.narrow(2, lengths_[0], tokens).copy_(k);
    to.values.narrow(2, lengths_[0], tokens).copy_(v);
    return;
  }
  at::Tensor first = at::tensor(lengths_, at::kLong).view({-1, 1});
  at::Tensor places = (first + at::arange(tokens)).to(k.device()).view({-1, 1, tokens, 1});
  places = places.expand_as(k);
  to.keys.scatter_(2, places, k);
  to.values.scatter_(2, places, v);
}

void KvCache::advance(int64_t tokens) {
  for (int64_t& length : lengths_) length += tokens;
}

at::Tensor KvCache::keys(int64_t layer, int64_t length) const {
  return layers_[static_cast<size_t>(layer)].keys.narrow(2, 0, length);
}

at::Tensor KvCache::values(int64_t layer, int64_t length) const {
  return layers_[static_cast<size_t>(layer)].values.narrow(2, 0, length);
}

}  // namespace muoncore::models
