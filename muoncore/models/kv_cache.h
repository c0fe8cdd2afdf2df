// Keys and values of the tokens that a batch has seen, preallocated, with a length of its own for
// each row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "muoncore/models/config.h"

namespace muoncore::models {

// Use: make one; CausalLM::forward_hidden(prompts, &cache) on right-padded prompts;
// set_lengths(prompt lengths), which forgets the padding; repeat_interleave(n) for n samples of
// each prompt; then forward_hidden(one token per row, &cache) again and again: each row appends at
// its own length. select(rows) drops finished rows.
class KvCache {
 public:
  // `capacity`: most tokens that a row can hold.
  KvCache(const ModelConfig& config, int64_t rows, int64_t capacity,
          at::ScalarType dtype = at::kFloat, at::Device device = at::kCPU);

  int64_t rows() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }  // tokens held, per row
  bool even() const;      // all rows hold equally many tokens
  int64_t bytes() const;  // of keys and values together

  // Forgets what row i holds beyond lengths[i]. Throws Error if a length exceeds what the row
  // holds.
  void set_lengths(std::vector<int64_t> lengths);
  void repeat_interleave(int64_t n);              // row i becomes rows i*n .. i*n+n-1
  void select(const std::vector<int64_t>& rows);  // keeps these rows, in this order

  // For CausalLM. append writes k, v [rows, kv_heads, tokens, head_dim] of one layer behind each
  // row's length; advance(tokens) makes them count, once all layers have appended. Throws Error
  // beyond the capacity.
  void append(int64_t layer, const at::Tensor& k, const at::Tensor& v);
  void advance(int64_t tokens);
  at::Tensor keys(int64_t layer,
                  int64_t length) const;  // [rows, kv_heads, length, head_dim], a view
  at::Tensor values(int64_t layer, int64_t length) const;  // likewise

 private:
  struct Layer {
    at::Tensor keys, values;  // [rows, kv_heads, capacity, head_dim]
  };
  std::vector<Layer> layers_;
  std::vector<int64_t> lengths_;
  int64_t capacity_;
};

}  // namespace muoncore::models
