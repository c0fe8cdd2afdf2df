#include "muoncore/core/yaml_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "muoncore/core/check.h"
#include "muoncore/core/yaml_parse.h"

namespace muoncore {

std::string to_string(const Position& position) {
  if (position.file.empty()) return "default";
  if (position.line == 0) return position.file;
  return fmt::format("{}:{}", position.file, position.line);
}

const char* to_string(YamlType type) {
  switch (type) {
    case YamlType::kNull:
      return "null";
    case YamlType::kBool:
      return "a flag";
    case YamlType::kInt:
      return "an integer";
    case YamlType::kFloat:
      return "a real number";
    case YamlType::kString:
      return "a string";
    case YamlType::kList:
      return "a list";
    case YamlType::kMap:
      return "a mapping";
  }
  return "?";
}

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const auto& [name, value] : fields)
    if (name == key) return &value;
  return nullptr;
}

bool YamlNode::same_value(const YamlNode& other) const {
  auto is_number = [](YamlType t) { return t == YamlType::kInt || t == YamlType::kFloat; };
  if (is_number(type) && is_number(other.type)) {
    if (type == YamlType::kInt && other.type == YamlType::kInt) return integer == other.integer;
    return real == other.real;
  }
  if (type != other.type) return false;
  if (type == YamlType::kBool) return boolean == other.boolean;
  if (type == YamlType::kString) return text == other.text;
  if (items.size() != other.items.size() || fields.size() != other.fields.size()) return false;
  for (size_t i = 0; i < items.size(); ++i)
    if (!items[i].same_value(other.items[i])) return false;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].first != other.fields[i].first) return false;
    if (!fields[i].second.same_value(other.fields[i].second)) return false;
  }
  return true;
}

YamlNode YamlNode::null_value() {
  YamlNode node;
  node.text = "null";
  return node;
}

YamlNode YamlNode::of(bool value) {
  YamlNode node;
  node.type = YamlType::kBool;
  node.boolean = value;
  node.text = value ? "True" : "False";
  return node;
}

YamlNode YamlNode::of(int64_t value) {
  YamlNode node;
  node.type = YamlType::kInt;
  node.integer = value;
  node.real = static_cast<double>(value);
  node.text = std::to_string(value);
  return node;
}

YamlNode YamlNode::of(int value) { return of(static_cast<int64_t>(value)); }

YamlNode YamlNode::of(double value) {
  YamlNode node;
  node.type = YamlType::kFloat;
  node.real = value;
  node.text = fmt::format("{}", value);
  if (!std::isfinite(value)) {
    node.text = std::isnan(value) ? ".nan" : value > 0 ? ".inf" : "-.inf";
  } else if (node.text.find('.') == std::string::npos) {  // YAML 1.1 readers want a point
    node.text.insert(std::min(node.text.find('e'), node.text.size()), ".0");
  }
  return node;
}

YamlNode YamlNode::of(std::string value) {
  YamlNode node;
  node.type = YamlType::kString;
  node.text = std::move(value);
  return node;
}

YamlNode YamlNode::of(const char* value) { return of(std::string(value)); }

YamlNode YamlNode::list(std::vector<YamlNode> items) {
  YamlNode node;
  node.type = YamlType::kList;
  node.items = std::move(items);
  return node;
}

YamlNode YamlNode::map(std::vector<std::pair<std::string, YamlNode>> fields) {
  YamlNode node;
  node.type = YamlType::kMap;
  node.fields = std::move(fields);
  return node;
}

YamlNode read_yaml(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  check(stream.good() && !std::filesystem::is_directory(file),
        "cannot read the config file '{}': {}", file.string(),
        std::filesystem::exists(file) ? "it is no readable file" : "it does not exist");
  std::stringstream content;
  content << stream.rdbuf();
  return parse_yaml(content.str(), file.string());
}

namespace {

std::vector<std::string> split_path(const std::string& path, const Position& position) {
  std::vector<std::string> keys;
  for (size_t begin = 0;;) {
    size_t dot = path.find('.', begin);
    keys.push_back(path.substr(begin, dot - begin));
    check(!keys.back().empty(), "{}: '{}': a key is missing between the dots", to_string(position),
          path);
    if (dot == std::string::npos) return keys;
    begin = dot + 1;
  }
}

YamlNode& field_of(YamlNode& map, const std::string& key) {
  for (auto& [name, value] : map.fields)
    if (name == key) return value;
  return map.fields.emplace_back(key, YamlNode{}).second;
}

}  // namespace

void set_path(YamlNode& tree, const std::string& path, YamlNode value) {
  YamlNode* node = &tree;
  for (const std::string& key : split_path(path, value.position)) {
    if (node->type != YamlType::kMap) {  // below a value: the schema judges it
      *node = YamlNode::map({});
      node->position = value.position;
    }
    node = &field_of(*node, key);
  }
  *node = std::move(value);
}

void apply_override(YamlNode& tree, const std::string& text) {
  size_t equals = text.find('=');
  check(equals != std::string::npos && equals > 0,
        "command line: '{}' is no override; write key.path=value", text);
  check(text[0] != '~',
        "command line: '{}': removing a key is not supported; set it to its default instead", text);
  std::string_view path(text.data(), equals);
  for (int pluses = 0; pluses < 2 && path.starts_with('+'); ++pluses) path.remove_prefix(1);
  const Position position{"command line"};
  YamlNode value;
  try {
    value = parse_yaml_value(text.substr(equals + 1), position);
  } catch (const Error& error) {
    fail("{} (in '{}')", error.what(), text);
  }
  set_path(tree, std::string(path), std::move(value));
}

std::string to_flow_yaml(const YamlNode& node) {
  switch (node.type) {
    case YamlType::kNull:
      return "null";
    case YamlType::kBool:
      return node.boolean ? "True" : "False";
    case YamlType::kInt:
      return std::to_string(node.integer);
    case YamlType::kFloat:
      return YamlNode::of(node.real).text;
    case YamlType::kString:
      return quote_if_needed(node.text);
    case YamlType::kList: {
      std::vector<std::string> parts;
      for (const YamlNode& item : node.items) parts.push_back(to_flow_yaml(item));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    }
    case YamlType::kMap: {
      std::vector<std::string> parts;
      for (const auto& [key, value] : node.fields)
        parts.push_back(fmt::format("{}: {}", quote_if_needed(key), to_flow_yaml(value)));
      return fmt::format("{{{}}}", fmt::join(parts, ", "));
    }
  }
  return "";
}

}  // namespace muoncore
