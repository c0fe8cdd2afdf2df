// A word out of a list, or one sentence that says what is allowed and what was probably meant.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "muoncore/core/check.h"

namespace muoncore::optim {

inline std::string did_you_mean(const std::string& word, const std::vector<std::string>& choices) {
  const std::string near = nearest_name(word, choices);
  return near.empty() ? "" : fmt::format("; did you mean '{}'?", near);
}

inline void check_choice(const std::string& key, const std::string& value,
                         const std::vector<std::string>& choices) {
  check(std::find(choices.begin(), choices.end(), value) != choices.end(),
        "{}: '{}' is unknown: allowed are {}{}", key, value, fmt::join(choices, ", "),
        did_you_mean(value, choices));
}

}  // namespace muoncore::optim
