// Which logical matrices a stored parameter holds, said by the config where the model does not say
// it: fused weights and convolutions. Each matrix is orthogonalized and scaled by its own shape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muoncore/core/param_spec.h"

namespace muoncore::optim {

enum class LayoutKind {
  kWhole,        // [rows, cols]: one matrix, whatever the model declared
  kQkv,          // fused query, (gate,) key and value rows
  kHeads,        // head_dim rows each: per-head Muon on an unfused projection
  kGateUp,       // the upper half of the rows, and the lower
  kRows,         // `blocks`, as ParamSpec has them
  kExperts,      // [experts, rows, cols]: one matrix per expert
  kConvolution,  // [out, in, kernel...]: the matrix [out, in * kernel...]
};
LayoutKind parse_layout_kind(std::string_view word);  // whole, qkv, ...; throws, naming the words
const char* to_string(LayoutKind kind);

struct MatrixLayout {
  LayoutKind kind = LayoutKind::kWhole;
  int64_t q_heads = 0, kv_heads = 0;  // kQkv; kv_heads divides q_heads
  int64_t head_dim = 0;               // kQkv, kHeads
  bool gate = false;                  // kQkv: an output gate, as many rows as q and behind it
  // kQkv: the rows are q, (gate,) k, v of the first group of heads that share k and v, then of the
  // next (Megatron's linear_qkv); false: q of all heads, then all gates, all k, all v.
  bool interleaved = true;
  bool per_head = false;  // kQkv: every head's q, gate, k and v is a matrix of its own
  RowBlocks blocks = {};  // kRows
  bool operator==(const MatrixLayout&) const = default;
};

// Parameters whose whole name matches `pattern` (ECMAScript) are laid out so.
struct LayoutRule {
  std::string pattern;
  MatrixLayout layout;
  bool operator==(const LayoutRule&) const = default;
};

// Throws on a pattern that is no regular expression and on numbers that no shape could fit.
void check_layout_rule(const LayoutRule& rule);

// The spec with `blocks` and `flatten` as the rule's layout has them. Throws, naming parameter,
// shape and rule, where the shape does not allow it.
ParamSpec with_layout(ParamSpec spec, const LayoutRule& rule);

struct LaidOutSpecs {
  std::vector<ParamSpec> specs;
  std::vector<std::string> patterns;  // of the rule that laid out each spec; "": the model's word
};

// The specs as the rules lay them out. Throws as the two above, on a rule that matches no
// parameter, and on a parameter that two rules match.
LaidOutSpecs lay_out(std::vector<ParamSpec> specs, const std::vector<LayoutRule>& rules);

// "" for one matrix; else the resolved layout as reports print it: "4 slices",
// "[8, 27] of [8, 3, 3, 3]", "split into rows 512 + 128 + 128, twice".
std::string describe_layout(const ParamSpec& spec);

}  // namespace muoncore::optim
