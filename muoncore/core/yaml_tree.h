// A strict YAML tree: every node knows its type and its position. Stricter than YAML: a duplicate
// key, an anchor, an alias, a tag, a merge key, a key that is no scalar, and a second
// document are errors. Scalars are typed by YAML 1.2's core schema with Python's booleans added, as
// verl writes them: null ~, true True TRUE, false False FALSE, integers, floats (1e-6 too, which
// YAML 1.1 reads as a string), strings. A quoted scalar is always a string.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muoncore {

// Where a value was written. `file` may also be "command line" (no line); empty for a default.
struct Position {
  std::string file;
  int line = 0;    // 1-based; 0: none
  int column = 0;  // 1-based; 0: none
};
std::string to_string(const Position& position);  // "FILE:LINE", "command line", "default"

enum class YamlType { kNull, kBool, kInt, kFloat, kString, kList, kMap };
const char* to_string(YamlType type);  // "null", "a boolean", "an integer", ...

struct YamlNode {
  YamlType type = YamlType::kNull;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0.0;            // also set for kInt
  std::string text;             // kString: the string; other scalars: as written
  std::vector<YamlNode> items;  // kList
  std::vector<std::pair<std::string, YamlNode>> fields;  // kMap, in the order of the file
  Position position;

  bool is_null() const { return type == YamlType::kNull; }
  const YamlNode* find(std::string_view key) const;  // kMap: the field, or nullptr
  bool same_value(const YamlNode& other) const;      // positions left out; 1 and 1.0 are the same

  static YamlNode null_value();
  static YamlNode of(bool value);
  static YamlNode of(int64_t value);
  static YamlNode of(double value);
  static YamlNode of(std::string value);
  static YamlNode of(const char* value);
  static YamlNode of(int value);
  static YamlNode list(std::vector<YamlNode> items);
  static YamlNode map(std::vector<std::pair<std::string, YamlNode>> fields);
};

// Parses one document whose root is a mapping (an empty document is an empty mapping). `name`
// stands in every position and message. Throws Error.
YamlNode parse_yaml(const std::string& source, const std::string& name);
YamlNode read_yaml(const std::filesystem::path& file);

// A scalar or flow value, typed by the same rules: the right-hand side of an override. `name` as
// above.
YamlNode parse_yaml_value(const std::string& source, const Position& position);

// Sets `key=value` into the tree, creating mappings on the way and replacing what was there. As in
// Hydra `+key=value` and `++key=value` are accepted too and mean the same: whether a key exists is
// decided by the schema, not by the file.
// `~key` (Hydra's removal) is refused. Throws Error.
void apply_override(YamlNode& tree, const std::string& override_text);

// Sets the value at a dotted path, as apply_override does.
void set_path(YamlNode& tree, const std::string& path, YamlNode value);

// A scalar or flow value as one line of YAML that parse_yaml_value reads back as the same value.
std::string to_flow_yaml(const YamlNode& node);

}  // namespace muoncore
