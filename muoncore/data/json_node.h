// Strict reading of JSON: a value together with the place it stands at, so that every complaint
// names it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muoncore::data {

// The whole file. Throws `Error` with the path and the system's reason.
std::string read_file(const std::filesystem::path& path);

enum class RepeatedKeys { kLastWins, kRefused };

// Throws `Error`: "<where> is not valid JSON: ..." (also for invalid UTF-8 and lone surrogates), or
// "<where> has the key 'k' twice".
nlohmann::json parse_json(std::string_view text, std::string_view where,
                          RepeatedKeys repeated_keys = RepeatedKeys::kLastWins);

// A view; the json must outlive it. Messages read "FILE: key.sub[3] must be a string, not a
// number".
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string where, std::string path = "")
      : value_(&value), where_(std::move(where)), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  std::string place() const;  // "FILE: key.sub[3]"
  bool is_null() const { return value_->is_null(); }

  JsonNode at(const std::string& key) const;                   // throws when missing
  std::optional<JsonNode> find(const std::string& key) const;  // nothing when missing or null
  std::vector<JsonNode> items() const;                         // of an array
  std::string text() const;
  bool flag() const;
  int64_t integer() const;
  bool flag_or(const std::string& key, bool otherwise) const;

  // Throws when this object has a key that is not listed.
  void only(std::initializer_list<const char*> keys) const;
  // Throws "<place> must be <what>, not <what it is>".
  [[noreturn]] void wrong(std::string_view what) const;
  // Throws "<place> is <value>: <why>"; of a list or an object only its kind is shown.
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  void check_object() const;
  const nlohmann::json* value_;
  std::string where_;
  std::string path_;
};

}  // namespace muoncore::data
