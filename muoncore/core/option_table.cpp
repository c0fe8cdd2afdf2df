#include "muoncore/core/option_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <set>

#include "muoncore/core/check.h"

namespace muoncore {
namespace {

std::string last_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

std::string parent_of(const std::string& path) {
  size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

// As nearest_name, but for case.
std::string nearest_of(const std::string& word, const std::vector<std::string>& candidates) {
  std::vector<std::string> lowered;
  for (const std::string& candidate : candidates) lowered.push_back(lower(candidate));
  std::string found = nearest_name(lower(word), lowered);
  for (size_t i = 0; i < candidates.size(); ++i)
    if (!found.empty() && lowered[i] == found) return candidates[i];
  return "";
}

std::string hint(const std::string& nearest) {
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

std::string range_text(const Option& option) {
  if (option.min && option.max) {
    if (*option.min == *option.max) return number_text(*option.min);
    return fmt::format("in {}{}, {}{}", option.min_open ? '(' : '[', number_text(*option.min),
                       number_text(*option.max), option.max_open ? ')' : ']');
  }
  if (option.min)
    return fmt::format("{} {}", option.min_open ? ">" : ">=", number_text(*option.min));
  if (option.max)
    return fmt::format("{} {}", option.max_open ? "<" : "<=", number_text(*option.max));
  return "";
}

bool in_range(const Option& option, double value) {
  if (std::find(option.besides.begin(), option.besides.end(), value) != option.besides.end())
    return true;
  if (option.min && (option.min_open ? value <= *option.min : value < *option.min)) return false;
  if (option.max && (option.max_open ? value >= *option.max : value > *option.max)) return false;
  return std::isfinite(value);
}

// What a message shows of a value: strings in quotes, so that "false" is seen to be one.
std::string shown(const YamlNode& value) {
  if (value.type == YamlType::kString) return fmt::format("\"{}\" (a string)", value.text);
  if (value.type == YamlType::kList || value.type == YamlType::kMap) return to_flow_yaml(value);
  return value.text.empty() ? to_flow_yaml(value) : value.text;
}

[[noreturn]] void refuse_value(const Option& option, const std::string& path, const YamlNode& value,
                               const std::string& nearest = "") {
  std::string why =
      option.why_only.empty() ? "" : fmt::format(" (not supported: {})", option.why_only);
  fail("{}: key '{}': value {}; allowed: {}{}{}", to_string(value.position), path, shown(value),
       describe_allowed(option), why, hint(nearest));
}

YamlNode as_text(const Option& option, const std::string& path, YamlNode value) {
  if (value.type != YamlType::kString) refuse_value(option, path, value);
  check(value.text.find("${") == std::string::npos,
        "{}: key '{}': value \"{}\": interpolation (${{...}}) is not supported; write the value",
        to_string(value.position), path, value.text);
  const auto& choices = option.choices;
  if (!choices.empty() && std::find(choices.begin(), choices.end(), value.text) == choices.end())
    refuse_value(option, path, value, nearest_of(value.text, choices));
  if (option.names_file && value.text.starts_with("~/")) {
    const char* home = std::getenv("HOME");
    check(home != nullptr, "{}: key '{}': value \"{}\": HOME is not set, so ~ has no meaning",
          to_string(value.position), path, value.text);
    value.text = home + value.text.substr(1);
  }
  return value;
}

YamlNode as_number(const Option& option, const std::string& path, const YamlNode& value,
                   bool whole) {
  bool fits = value.type == YamlType::kInt || (!whole && value.type == YamlType::kFloat);
  if (!fits || !in_range(option, value.real)) refuse_value(option, path, value);
  if (whole) return value;
  YamlNode real = YamlNode::of(value.real);
  real.position = value.position;
  return real;
}

YamlNode as_flag(const Option& option, const std::string& path, const YamlNode& value) {
  if (value.type != YamlType::kBool) refuse_value(option, path, value);
  const char* word = value.boolean ? "True" : "False";
  if (!option.choices.empty() && option.choices[0] != word) refuse_value(option, path, value);
  return value;
}

template <typename Element>
YamlNode as_list(const Option& option, const std::string& path, YamlNode value, Element element) {
  if (value.type != YamlType::kList) refuse_value(option, path, value);
  if (option.size && value.items.size() != *option.size) refuse_value(option, path, value);
  for (YamlNode& item : value.items) item = element(item);
  return value;
}

YamlNode as_mapping(const Option& option, const std::string& path, YamlNode value) {
  if (value.type != YamlType::kMap) refuse_value(option, path, value);
  if (option.keys.empty()) return value;
  std::vector<std::string> names;
  for (const Option& key : option.keys) names.push_back(key.path);
  for (auto& [name, field] : value.fields) {
    size_t index = std::find(names.begin(), names.end(), name) - names.begin();
    check(index < names.size(), "{}: unknown key '{}.{}'; allowed: {}{}", to_string(field.position),
          path, name, fmt::join(names, ", "), hint(nearest_of(name, names)));
    field = check_option(option.keys[index], path + "." + name, field);
  }
  return value;
}

}  // namespace

const char* to_string(OptionType type) {
  switch (type) {
    case OptionType::kFlag:
      return "flag";
    case OptionType::kInteger:
      return "integer";
    case OptionType::kReal:
      return "real";
    case OptionType::kText:
      return "text";
    case OptionType::kIntegers:
      return "integers";
    case OptionType::kReals:
      return "reals";
    case OptionType::kTexts:
      return "texts";
    case OptionType::kTextOrTexts:
      return "text or texts";
    case OptionType::kNull:
      return "null";
    case OptionType::kMapping:
      return "mapping";
  }
  return "?";
}

std::string describe_allowed(const Option& option) {
  std::string text;
  std::string range = range_text(option);
  std::string choices = fmt::format("{}", fmt::join(option.choices, ", "));
  std::string count = option.size ? fmt::format("{} ", *option.size) : "";
  auto number = [&](const char* word) {
    return range.empty() ? word : fmt::format("{} {}", word, range);
  };
  auto one_of = [&](const char* word) { return choices.empty() ? word : "one of " + choices; };
  bool exact = option.min && option.max && *option.min == *option.max;
  switch (option.type) {
    case OptionType::kFlag:
      text = choices.empty() ? "True or False" : choices;
      break;
    case OptionType::kInteger:
      text = exact ? range : number("an integer");
      break;
    case OptionType::kReal:
      text = exact ? range : number("a real number");
      break;
    case OptionType::kText:
      text = option.choices.size() == 1 ? choices : one_of("a string");
      break;
    case OptionType::kIntegers:
      text = fmt::format("a list of {}{}", count, number("integers"));
      break;
    case OptionType::kReals:
      text = fmt::format("a list of {}{}", count, number("real numbers"));
      break;
    case OptionType::kTexts:
      text = choices.empty() ? "a list of strings" : "a list of words out of " + choices;
      break;
    case OptionType::kTextOrTexts:
      text = "a string or a list of strings";
      break;
    case OptionType::kNull:
      return "null";
    case OptionType::kMapping:
      text = "a mapping";
      break;
  }
  for (double value : option.besides) text += fmt::format(", or {}", number_text(value));
  return option.nullable ? text + ", or null" : text;
}

YamlNode check_option(const Option& option, const std::string& path, const YamlNode& value) {
  if (value.is_null()) {
    if (!option.nullable) refuse_value(option, path, value);
    return value;
  }
  auto text = [&](const YamlNode& item) { return as_text(option, path, item); };
  auto integer = [&](const YamlNode& item) { return as_number(option, path, item, true); };
  auto real = [&](const YamlNode& item) { return as_number(option, path, item, false); };
  switch (option.type) {
    case OptionType::kFlag:
      return as_flag(option, path, value);
    case OptionType::kInteger:
      return integer(value);
    case OptionType::kReal:
      return real(value);
    case OptionType::kText:
      return text(value);
    case OptionType::kIntegers:
      return as_list(option, path, value, integer);
    case OptionType::kReals:
      return as_list(option, path, value, real);
    case OptionType::kTexts:
      return as_list(option, path, value, text);
    case OptionType::kTextOrTexts: {
      if (value.type == YamlType::kList) return as_list(option, path, value, text);
      YamlNode list = YamlNode::list({text(value)});
      list.position = value.position;
      return list;
    }
    case OptionType::kNull:
      refuse_value(option, path, value);
    case OptionType::kMapping:
      return as_mapping(option, path, value);
  }
  fail("key '{}': an option without a type", path);
}

OptionTable::OptionTable(std::vector<Option> options, std::vector<Refusal> refusals)
    : options_(std::move(options)), refusals_(std::move(refusals)) {
  for (size_t i = 0; i < options_.size(); ++i) {
    check(index_.emplace(options_[i].path, i).second, "option '{}' is declared twice",
          options_[i].path);
    for (std::string section = parent_of(options_[i].path); !section.empty();
         section = parent_of(section))
      sections_.insert(section);
  }
}

const Option* OptionTable::find(const std::string& path) const {
  auto found = index_.find(path);
  return found == index_.end() ? nullptr : &options_[found->second];
}

bool OptionTable::is_section(const std::string& path) const { return sections_.contains(path); }

const Refusal* OptionTable::refusal_of(const std::string& path) const {
  for (const Refusal& refusal : refusals_) {
    if (refusal.path == path) return &refusal;
    if (refusal.path.starts_with("*.") && refusal.path.substr(2) == last_name(path))
      return &refusal;
  }
  return nullptr;
}

void OptionTable::refuse_unknown(const std::string& path, const YamlNode& node) const {
  if (const Refusal* refusal = refusal_of(path))
    fail("{}: key '{}': not supported: {}", to_string(node.position), path, refusal->reason);
  std::string parent = parent_of(path);
  check(find(parent) == nullptr, "{}: unknown key '{}': '{}' is a value, not a mapping",
        to_string(node.position), path, parent);
  std::set<std::string> siblings;
  std::vector<std::string> elsewhere;
  auto consider = [&](const std::string& candidate) {
    if (parent_of(candidate) == parent) siblings.insert(last_name(candidate));
    if (last_name(candidate) == last_name(path)) elsewhere.push_back(candidate);
  };
  for (const Option& option : options_) consider(option.path);
  for (const std::string& section : sections_) consider(section);
  std::vector<std::string> names(siblings.begin(), siblings.end());
  std::string near = nearest_of(last_name(path), names);
  if (!near.empty() && !parent.empty()) near = parent + "." + near;
  if (near.empty() && elsewhere.size() == 1) near = elsewhere[0];
  fail("{}: unknown key '{}'{}; allowed in {}: {}", to_string(node.position), path, hint(near),
       parent.empty() ? "this file" : fmt::format("'{}'", parent), fmt::join(names, ", "));
}

void OptionTable::collect(const YamlNode& tree, const std::string& prefix,
                          ResolvedOptions& values) const {
  for (const auto& [name, node] : tree.fields) {
    std::string path = prefix.empty() ? name : prefix + "." + name;
    check(name.find('.') == std::string::npos,
          "{}: key '{}': a key may not contain a dot; nest it, or give it as an override",
          to_string(node.position), path);
    if (const Option* option = find(path)) {
      values[path] = check_option(*option, path, node);
    } else if (!is_section(path)) {
      refuse_unknown(path, node);
    } else {
      check(node.type == YamlType::kMap, "{}: key '{}': value {}; allowed: a mapping of keys",
            to_string(node.position), path, shown(node));
      collect(node, path, values);
    }
  }
}

ResolvedOptions OptionTable::resolve(const YamlNode& tree) const {
  ResolvedOptions values;
  collect(tree, "", values);
  for (const Option& option : options_) values.emplace(option.path, option.fallback);
  return values;
}

}  // namespace muoncore
