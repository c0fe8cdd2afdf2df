// Enumerations by their words in options and configs.
#pragma once

#include <fmt/ranges.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muoncore/core/check.h"

namespace muoncore::muon {

template <typename Value, size_t count>
using Words = std::array<std::pair<const char*, Value>, count>;

// The value of `text`; throws for an unknown word, naming all of them and the nearest. `what` says
// what the words are for.
template <typename Value, size_t count>
Value parse_word(const char* what, std::string_view text, const Words<Value, count>& words) {
  std::vector<std::string> names;
  for (const auto& [name, value] : words) {
    if (text == name) return value;
    names.emplace_back(name);
  }
  const std::string near = nearest_name(text, names);
  fail("{} '{}' is not one of {}{}", what, text, fmt::join(names, ", "),
       near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

}  // namespace muoncore::muon
