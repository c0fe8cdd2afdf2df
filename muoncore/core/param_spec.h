// What a model tells an optimizer about a parameter: all of it, and nothing else. The model
// declares the role and the logical blocks; routing, buffers, planners and Newton-Schulz read them.
// Nothing is ever guessed from a name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muoncore {

enum class ParamRole {
  kMatrix,             // a weight of the transformer body, [out, in] (or [experts, out, in])
  kEmbedding,          // token embedding, [vocab, hidden]; also when tied to the output layer
  kOutput,             // output layer (lm_head), [vocab, hidden]
  kPositionEmbedding,  // learned positions, [positions, hidden]
  kRouter,             // router of a mixture of experts, [experts, hidden]
  kNorm,               // scale of a norm, [features]
  kBias,               // bias, [features]
};

// A stored matrix that fuses several logical ones along its rows. `rows` are the row counts of one
// group's blocks; the group repeats rows(total) / sum(rows) times, and block k of every group
// together form logical matrix k (Megatron's linear_qkv: {heads/groups * head_dim, head_dim,
// head_dim} repeated per query group). Empty: one matrix. With `per_group`, each group's block is a
// logical matrix of its own (per-head Muon).
struct RowBlocks {
  std::vector<int64_t> rows;
  bool per_group = false;
  bool operator==(const RowBlocks&) const = default;
};

struct ParamSpec {
  std::string name;  // full dotted name, as in the checkpoint
  ParamRole role = ParamRole::kMatrix;
  std::vector<int64_t> shape;  // logical, unsharded
  RowBlocks blocks;
  int partition_dim = -1;  // dimension cut by tensor parallelism; -1: replicated
  bool flatten = false;    // a convolution's kernel [out, in, kh, kw]: see matrix_shape
  bool operator==(const ParamSpec&) const = default;
};

// What Muon sees of a parameter: [rows, cols] or [batch, rows, cols]. With `flatten` the first
// dimension against all others: [out, in, kh, kw] is the matrix [out, in * kh * kw].
inline std::vector<int64_t> matrix_shape(const std::vector<int64_t>& shape, bool flatten) {
  if (!flatten) return shape;
  int64_t columns = 1;
  for (size_t i = 1; i < shape.size(); ++i) columns *= shape[i];
  return {shape.empty() ? 1 : shape[0], columns};
}

inline const char* to_string(ParamRole role) {
  switch (role) {
    case ParamRole::kMatrix:
      return "matrix";
    case ParamRole::kEmbedding:
      return "embedding";
    case ParamRole::kOutput:
      return "output layer";
    case ParamRole::kPositionEmbedding:
      return "position embedding";
    case ParamRole::kRouter:
      return "router";
    case ParamRole::kNorm:
      return "norm";
    case ParamRole::kBias:
      return "bias";
  }
  return "?";
}

}  // namespace muoncore
