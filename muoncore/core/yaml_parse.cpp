#include "muoncore/core/yaml_parse.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "muoncore/core/check.h"

namespace muoncore {
namespace {

constexpr size_t kMaxDepth = 64;  // a config is no deeper; guards the recursion over the tree

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// [-+]? (0 | [1-9][0-9]*). A leading zero is octal for some readers and decimal for others: no
// number here.
bool looks_like_integer(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return is_digits(text) && (text.size() == 1 || text[0] != '0');
}

// [-+]? digits? (. digits?)? ([eE] [-+]? digits)?, with a digit before the exponent and a point or
// an exponent.
bool looks_like_real(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  size_t e = text.find_first_of("eE");
  std::string_view mantissa = text.substr(0, e);
  size_t point = mantissa.find('.');
  if (e == std::string_view::npos && point == std::string_view::npos) return false;
  if (e != std::string_view::npos) {
    std::string_view exponent = text.substr(e + 1);
    if (exponent.starts_with('-') || exponent.starts_with('+')) exponent.remove_prefix(1);
    if (!is_digits(exponent)) return false;
  }
  std::string_view whole = mantissa.substr(0, point);
  std::string_view fraction =
      point == std::string_view::npos ? std::string_view() : mantissa.substr(point + 1);
  if (whole.empty() && fraction.empty()) return false;
  return (whole.empty() || is_digits(whole)) && (fraction.empty() || is_digits(fraction));
}

std::optional<double> special_real(std::string_view text) {
  bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text == ".inf" || text == ".Inf" || text == ".INF") {
    double infinity = std::numeric_limits<double>::infinity();
    return negative ? -infinity : infinity;
  }
  if (!negative && (text == ".nan" || text == ".NaN" || text == ".NAN"))
    return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

double parse_real(std::string_view text, const Position& position) {
  double value = 0;
  std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  check(error == std::errc() && end == digits.data() + digits.size(),
        "{}: the number {} is beyond the range of a double", to_string(position), text);
  return value;
}

int64_t parse_integer(std::string_view text, const Position& position) {
  int64_t value = 0;
  std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  check(error == std::errc() && end == digits.data() + digits.size(),
        "{}: the integer {} does not fit into 64 bits", to_string(position), text);
  return value;
}

// Builds the tree from yaml-cpp's events, which, unlike its nodes, show duplicates, quotes, tags
// and aliases.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(Position origin, const std::string& source)
      : origin_(std::move(origin)), source_(source) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    fail("{}: the anchor &{} is not supported; write the value where it is used",
         to_string(at(mark)), name);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail("{}: aliases (*name) are not supported; write the value where it is used",
         to_string(at(mark)));
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    YamlNode node = YamlNode::null_value();
    add(std::move(node), mark, /*is_key_text=*/false);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    refuse_tag(mark, tag);
    bool quoted = tag == "!";
    if (quoted) check_closed(mark);
    if (expects_key()) {
      check(quoted || value != "<<", "{}: merge keys (<<) are not supported", to_string(at(mark)));
      YamlNode key = YamlNode::of(value);
      return add(std::move(key), mark, /*is_key_text=*/true);
    }
    YamlNode node = quoted ? YamlNode::of(value) : type_plain_scalar(value, at(mark));
    add(std::move(node), mark, /*is_key_text=*/false);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::list({}), mark, tag);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::map({}), mark, tag);
  }
  void OnMapEnd() override { close(); }

  std::optional<YamlNode> root;

 private:
  struct Frame {
    YamlNode node;
    std::optional<std::string> key;  // of a mapping: the key whose value comes next
    Position key_position;
  };

  Position at(const YAML::Mark& mark) const {
    if (origin_.line < 0) return {origin_.file};  // a command line has no lines
    return {origin_.file, mark.line + 1, mark.column + 1};
  }

  bool expects_key() const {
    return !stack_.empty() && stack_.back().node.type == YamlType::kMap && !stack_.back().key;
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    check(tag.empty() || tag == "?" || tag == "!", "{}: the tag {} is not supported",
          to_string(at(mark)), tag);
  }

  // yaml-cpp lets a quote that is never closed end with the input. Ours end on the line they begin
  // on.
  void check_closed(const YAML::Mark& mark) const {
    size_t begin = static_cast<size_t>(mark.pos);
    if (begin >= source_.size()) return;
    const char quote = source_[begin];
    for (size_t i = begin + 1; i < source_.size() && source_[i] != '\n'; ++i) {
      if (source_[i] == quote) return;  // of '' the first one is enough
      if (source_[i] == '\\' && quote == '"') ++i;
    }
    fail("{}: no valid YAML: a quoted string must end on its line", to_string(at(mark)));
  }

  void open(YamlNode node, const YAML::Mark& mark, const std::string& tag) {
    refuse_tag(mark, tag);
    check(!expects_key(), "{}: a key must be a string (or a bracket is not closed)",
          to_string(at(mark)));
    check(stack_.size() < kMaxDepth, "{}: nested deeper than {} levels", to_string(at(mark)),
          kMaxDepth);
    node.position = at(mark);
    stack_.push_back({std::move(node), std::nullopt, {}});
  }

  void close() {
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    place(std::move(node));
  }

  void add(YamlNode node, const YAML::Mark& mark, bool is_key_text) {
    node.position = at(mark);
    if (!expects_key()) return place(std::move(node));
    Frame& frame = stack_.back();
    check(is_key_text, "{}: no valid YAML: a key is missing", to_string(node.position));
    if (const YamlNode* first = frame.node.find(node.text))
      fail("{}: duplicate key '{}' (first at {})", to_string(node.position), node.text,
           to_string(first->position));
    frame.key = node.text;
    frame.key_position = node.position;
  }

  // A value belongs to the mapping or list that is open, and stands where its key stands.
  void place(YamlNode node) {
    if (stack_.empty()) {
      root = std::move(node);
      return;
    }
    Frame& frame = stack_.back();
    if (frame.node.type == YamlType::kList) {
      frame.node.items.push_back(std::move(node));
      return;
    }
    node.position = frame.key_position;
    frame.node.fields.emplace_back(*frame.key, std::move(node));
    frame.key.reset();
  }

  Position origin_;
  const std::string& source_;  // without a byte order mark, so that marks point into it
  std::vector<Frame> stack_;
};

// `origin.line` < 0: positions carry no line.
std::optional<YamlNode> parse_document(std::string source, const Position& origin) {
  check(is_valid_utf8(source), "{}: not valid UTF-8", to_string(Position{origin.file}));
  if (source.starts_with("\xEF\xBB\xBF")) source.erase(0, 3);
  std::istringstream stream(source);
  TreeBuilder builder(origin, source);
  try {
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    std::optional<YamlNode> root = std::move(builder.root);
    TreeBuilder rest(origin, source);
    check(!parser.HandleNextDocument(rest), "{}: more than one YAML document", origin.file);
    return root;
  } catch (const YAML::Exception& error) {
    Position position{origin.file};
    if (origin.line >= 0 && error.mark.line >= 0) position.line = error.mark.line + 1;
    fail("{}: no valid YAML: {}", to_string(position), error.msg);
  }
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  using Json = nlohmann::json;
  try {
    Json(std::string(text)).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

YamlNode type_plain_scalar(std::string_view text, const Position& position) {
  YamlNode node = YamlNode::of(std::string(text));
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    node = YamlNode::null_value();
  } else if (text == "true" || text == "True" || text == "TRUE") {
    node = YamlNode::of(true);
  } else if (text == "false" || text == "False" || text == "FALSE") {
    node = YamlNode::of(false);
  } else if (looks_like_integer(text)) {
    node = YamlNode::of(parse_integer(text, position));
  } else if (looks_like_real(text)) {
    node = YamlNode::of(parse_real(text, position));
  } else if (std::optional<double> special = special_real(text)) {
    node = YamlNode::of(*special);
  }
  node.text = std::string(text);
  node.position = position;
  return node;
}

YamlNode parse_yaml(const std::string& source, const std::string& name) {
  std::optional<YamlNode> root = parse_document(source, {name});
  if (!root || root->is_null()) {
    YamlNode empty = YamlNode::map({});
    empty.position = {name};
    return empty;
  }
  check(root->type == YamlType::kMap, "{}: the file must be a mapping of keys, not {}",
        to_string(root->position), to_string(root->type));
  return std::move(*root);
}

YamlNode parse_yaml_value(const std::string& source, const Position& position) {
  std::string_view text = source;
  size_t first = text.find_first_not_of(" \t");
  check(first != std::string_view::npos,
        "{}: a value is missing after '='; write null for none, '' for an empty string",
        to_string(position));
  text = text.substr(first, text.find_last_not_of(" \t") - first + 1);
  check(is_valid_utf8(text), "{}: not valid UTF-8", to_string(position));
  if (std::string_view("[{\"'").find(text[0]) == std::string_view::npos)
    return type_plain_scalar(text, position);
  std::optional<YamlNode> value = parse_document(std::string(text), {position.file, -1});
  check(value.has_value(), "{}: '{}' is no value", to_string(position), text);
  bool block = value->type == YamlType::kMap && text[0] != '{';
  check(!block, "{}: '{}' is no value", to_string(position), text);
  return std::move(*value);
}

std::string quote_if_needed(const std::string& text) {
  auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  auto is_bare = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') ||
           std::string_view("_-./+").find(c) != std::string_view::npos;
  };
  // What some reader takes for another type: null and the booleans of YAML 1.1 and 1.2.
  static const std::set<std::string> kWords = {"null", "true", "false", "yes", "no",
                                               "on",   "off",  "y",     "n"};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  bool safe = !text.empty() && (is_letter(text[0]) || text[0] == '_' || text[0] == '/') &&
              std::all_of(text.begin(), text.end(), is_bare) && !kWords.contains(lower);
  return safe ? text : nlohmann::json(text).dump();
}

}  // namespace muoncore
