#include "muoncore/data/json_node.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

#include "muoncore/core/check.h"

namespace muoncore::data {
namespace {

constexpr size_t kShownCharacters = 80;

const char* kind_of(const nlohmann::json& value) {
  switch (value.type()) {
    case nlohmann::json::value_t::null:
      return "null";
    case nlohmann::json::value_t::object:
      return "an object";
    case nlohmann::json::value_t::array:
      return "a list";
    case nlohmann::json::value_t::string:
      return "a string";
    case nlohmann::json::value_t::boolean:
      return "a boolean";
    default:
      return "a number";
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  check(file != nullptr, "cannot open {}: {}", path.string(), std::strerror(errno));
  std::string bytes;
  char buffer[1 << 16];
  size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof buffer, file.get())) > 0)
    bytes.append(buffer, count);
  check(std::ferror(file.get()) == 0, "cannot read {}: {}", path.string(), std::strerror(errno));
  return bytes;
}

nlohmann::json parse_json(std::string_view text, std::string_view where,
                          RepeatedKeys repeated_keys) {
  std::vector<std::set<std::string>> open;  // keys of the objects that the parser is within
  auto watch = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second)
      fail("{} has the key '{}' twice", where, parsed.get<std::string>());
    return true;
  };
  try {
    if (repeated_keys == RepeatedKeys::kRefused) return nlohmann::json::parse(text, watch);
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    std::string_view reason = e.what();  // "[json.exception.parse_error.101] parse error at ..."
    size_t bracket = reason.find("] ");
    if (bracket != std::string_view::npos) reason.remove_prefix(bracket + 2);
    fail("{} is not valid JSON: {}", where, reason.substr(0, 300));
  }
}

std::string JsonNode::place() const { return path_.empty() ? where_ : where_ + ": " + path_; }

void JsonNode::wrong(std::string_view what) const {
  fail("{} must be {}, not {}", place(), what, kind_of(*value_));
}

void JsonNode::refuse(std::string_view why) const {
  bool nested = value_->is_structured() && !value_->empty();  // of any depth and size
  std::string shown = nested ? kind_of(*value_) : value_->dump();
  if (shown.size() > kShownCharacters) shown = shown.substr(0, kShownCharacters) + "...";
  fail("{} is {}: {}", place(), shown, why);
}

void JsonNode::check_object() const {
  if (!value_->is_object()) wrong("an object");
}

std::optional<JsonNode> JsonNode::find(const std::string& key) const {
  check_object();
  auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonNode(*found, where_, path_.empty() ? key : path_ + "." + key);
}

JsonNode JsonNode::at(const std::string& key) const {
  check_object();
  auto found = value_->find(key);
  check(found != value_->end(), "{}{} has no key '{}'", place(),
        path_.empty() ? ": the object" : "", key);
  return JsonNode(*found, where_, path_.empty() ? key : path_ + "." + key);
}

std::vector<JsonNode> JsonNode::items() const {
  if (!value_->is_array()) wrong("a list");
  std::vector<JsonNode> nodes;
  nodes.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i)
    nodes.emplace_back((*value_)[i], where_, fmt::format("{}[{}]", path_, i));
  return nodes;
}

std::string JsonNode::text() const {
  if (!value_->is_string()) wrong("a string");
  return value_->get<std::string>();
}

bool JsonNode::flag() const {
  if (!value_->is_boolean()) wrong("true or false");
  return value_->get<bool>();
}

int64_t JsonNode::integer() const {
  if (!value_->is_number_integer()) wrong("an integer");
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > INT64_MAX)
    refuse("too large for a 64-bit integer");
  return value_->get<int64_t>();
}

bool JsonNode::flag_or(const std::string& key, bool otherwise) const {
  std::optional<JsonNode> node = find(key);
  return node ? node->flag() : otherwise;
}

void JsonNode::only(std::initializer_list<const char*> keys) const {
  check_object();
  std::vector<std::string> allowed(keys.begin(), keys.end());
  for (const auto& [key, unused] : value_->items()) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    fail("{} has a key that is not supported: '{}' (supported: {})", place(), key,
         fmt::join(allowed, ", "));
  }
}

}  // namespace muoncore::data
