// Between the strict tree (yaml_tree.h) and yaml-cpp: typing of plain scalars, and quoting.
#pragma once

#include <string>
#include <string_view>

#include "muoncore/core/yaml_tree.h"

namespace muoncore {

// A plain (unquoted) scalar in its type. Throws Error on a number that its type cannot hold.
YamlNode type_plain_scalar(std::string_view text, const Position& position);

// `text` as a YAML scalar that is read back as the same string: bare where that is safe, else in
// double quotes.
std::string quote_if_needed(const std::string& text);

bool is_valid_utf8(std::string_view text);

}  // namespace muoncore
