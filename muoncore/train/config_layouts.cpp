#include "muoncore/train/config_layouts.h"

#include "muoncore/core/check.h"
#include "muoncore/train/config_rows.h"

namespace muoncore::train {
namespace {

using optim::LayoutKind;

// The layouts that have settings.
Option settings_table() {
  Row qkv = mapping("qkv", "").mapping_keys(
      {integer("q_heads", 0, "").at_least(1), integer("kv_heads", 0, "").at_least(1),
       integer("head_dim", 0, "").at_least(1), flag("gate", false, ""),
       flag("interleaved", true, ""), flag("per_head", false, "")});
  Row heads = mapping("heads", "").mapping_keys({integer("head_dim", 0, "").at_least(1)});
  Row rows =
      mapping("rows", "")
          .mapping_keys({integers("blocks", {}, "").at_least(1), flag("per_group", false, "")});
  return mapping("", "").mapping_keys({std::move(qkv), std::move(heads), std::move(rows)});
}

// One rule: its place in messages, and the mapping of its layout's settings.
struct LayoutReader {
  const std::string& path;
  const YamlNode& settings;

  const YamlNode& needed(const char* key) const {
    const YamlNode* found = settings.find(key);
    if (!found) fail("{}: key '{}': {} is missing", to_string(settings.position), path, key);
    return *found;
  }
  bool flag(const char* key, bool otherwise) const {
    const YamlNode* found = settings.find(key);
    return found ? found->boolean : otherwise;
  }
  optim::MatrixLayout read(LayoutKind kind) const;
};

optim::MatrixLayout LayoutReader::read(LayoutKind kind) const {
  optim::MatrixLayout out;
  out.kind = kind;
  if (kind == LayoutKind::kQkv) {
    out.q_heads = needed("q_heads").integer;
    out.kv_heads = needed("kv_heads").integer;
    out.gate = flag("gate", out.gate);
    out.interleaved = flag("interleaved", out.interleaved);
    out.per_head = flag("per_head", out.per_head);
  }
  if (kind == LayoutKind::kRows) {
    for (const YamlNode& count : needed("blocks").items) out.blocks.rows.push_back(count.integer);
    out.blocks.per_group = flag("per_group", false);
  } else {
    out.head_dim = needed("head_dim").integer;
  }
  return out;
}

optim::MatrixLayout layout_of(const YamlNode& value, const std::string& path) {
  if (value.type == YamlType::kMap) {
    const YamlNode checked = check_option(settings_table(), path, value);
    if (checked.fields.size() != 1)
      fail("{}: key '{}': value {}; allowed: one layout, such as {{heads: {{head_dim: 64}}}}",
           to_string(value.position), path, to_flow_yaml(value));
    const auto& [word, settings] = checked.fields.front();
    return LayoutReader{path, settings}.read(optim::parse_layout_kind(word));
  }
  const Option words = text("", "", "")
                           .one_of({"whole", "gate_up", "experts", "convolution"})
                           .why("qkv, heads and rows need settings: {heads: {head_dim: 64}}");
  optim::MatrixLayout out;
  out.kind = optim::parse_layout_kind(check_option(words, path, value).text);
  return out;
}

}  // namespace

std::vector<optim::LayoutRule> layout_rules(const YamlNode& rules, const std::string& key) {
  std::vector<optim::LayoutRule> out;
  for (const auto& [pattern, value] : rules.fields) {
    const std::string path = key + "." + pattern;
    out.push_back({pattern, layout_of(value, path)});
    try {
      check_layout_rule(out.back());
    } catch (const Error& error) {
      fail("{}: key '{}': {}", to_string(value.position), path, error.what());
    }
  }
  return out;
}

}  // namespace muoncore::train
