#include "muoncore/models/json_fields.h"

#include "muoncore/core/check.h"

namespace muoncore::models {

using nlohmann::json;

JsonFields::JsonFields(const json& object, std::string label)
    : object_(object), label_(std::move(label)) {
  check(object.is_object(), "{}: must be a JSON object, found {}", label_, object.type_name());
}

const json* JsonFields::find(const char* key) const {
  auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

template <typename T>
T JsonFields::needed(const char* key, std::optional<T> value) const {
  check(value.has_value(), "{}: {} is missing", label_, key);
  return *value;
}

std::optional<int64_t> JsonFields::optional_integer(const char* key) const {
  const json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX}))
    fail("{}: {} must be a whole number, found {}", label_, key, value->dump());
  return value->get<int64_t>();
}

int64_t JsonFields::integer(const char* key, int64_t otherwise) const {
  return optional_integer(key).value_or(otherwise);
}

int64_t JsonFields::integer(const char* key) const { return needed(key, optional_integer(key)); }

std::optional<double> JsonFields::optional_real(const char* key) const {
  const json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_number()) fail("{}: {} must be a number, found {}", label_, key, value->dump());
  return value->get<double>();
}

double JsonFields::real(const char* key, double otherwise) const {
  return optional_real(key).value_or(otherwise);
}

double JsonFields::real(const char* key) const { return needed(key, optional_real(key)); }

bool JsonFields::flag(const char* key, bool otherwise) const {
  const json* value = find(key);
  if (!value) return otherwise;
  if (!value->is_boolean())
    fail("{}: {} must be true or false, found {}", label_, key, value->dump());
  return value->get<bool>();
}

std::string JsonFields::text(const char* key, std::string_view otherwise) const {
  const json* value = find(key);
  if (!value) return std::string(otherwise);
  if (!value->is_string()) fail("{}: {} must be a string, found {}", label_, key, value->dump());
  return value->get<std::string>();
}

std::vector<int64_t> JsonFields::integers(const char* key) const {
  const json* value = find(key);
  if (!value) return {};
  std::vector<int64_t> numbers;
  for (const json& item : value->is_array() ? *value : json::array({*value})) {
    if (!item.is_number_integer())
      fail("{}: {} must be a whole number or a list of them, found {}", label_, key, value->dump());
    numbers.push_back(item.get<int64_t>());
  }
  return numbers;
}

}  // namespace muoncore::models
