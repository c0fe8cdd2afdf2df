// Typed reading of one JSON object, with errors that name file and key. Used for config.json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muoncore::models {

// A key that is absent or null counts as not set. Getters throw Error when a set key has another
// type.
class JsonFields {
 public:
  // `label`: the file, and within it the object ("config.json", "config.json: rope_scaling").
  JsonFields(const nlohmann::json& object, std::string label);

  const std::string& label() const { return label_; }
  bool has(const char* key) const { return find(key) != nullptr; }
  const nlohmann::json* find(const char* key) const;  // nullptr when not set

  int64_t integer(const char* key) const;  // throws when not set
  int64_t integer(const char* key, int64_t otherwise) const;
  std::optional<int64_t> optional_integer(const char* key) const;
  double real(const char* key) const;  // throws when not set
  double real(const char* key, double otherwise) const;
  std::optional<double> optional_real(const char* key) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, std::string_view otherwise) const;
  std::vector<int64_t> integers(
      const char* key) const;  // one number, a list of them, or {} when not set

 private:
  template <typename T>
  T needed(const char* key, std::optional<T> value) const;

  const nlohmann::json& object_;
  std::string label_;
};

}  // namespace muoncore::models
