// The key muon_matrix_layouts: {regular expression over whole names: layout}. A layout is a word
// (whole, gate_up, experts, convolution) or a word with its settings:
//   {qkv: {q_heads: 8, kv_heads: 2, head_dim: 64, gate: False, interleaved: True, per_head: False}}
//   {heads: {head_dim: 64}}    {rows: {blocks: [512, 128, 128], per_group: False}}
#pragma once

#include <string>
#include <vector>

#include "muoncore/core/yaml_tree.h"
#include "muoncore/optim/matrix_layout.h"

namespace muoncore::train {

// `key`: the full name of muon_matrix_layouts, for messages. Throws Error with the position of what
// is wrong: an unknown word or setting, a missing one, a pattern that is no regular expression.
std::vector<optim::LayoutRule> layout_rules(const YamlNode& rules, const std::string& key);

}  // namespace muoncore::train
