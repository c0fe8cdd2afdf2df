#include "muoncore/data/truncation.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::data {

void check_choice(std::string_view key, const std::string& value,
                  const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string near = nearest_name(value, allowed);
  fail("{} is '{}'; allowed: {}{}", key, value, fmt::join(allowed, ", "),
       near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

std::vector<std::pair<int64_t, int64_t>> kept_ranges(int64_t length, int64_t max_length,
                                                     const std::string& truncation,
                                                     std::string_view where) {
  if (length <= max_length) return {{0, length}};
  if (truncation == "left") return {{length - max_length, length}};
  if (truncation == "right") return {{0, max_length}};
  if (truncation == "middle") {
    int64_t front = max_length / 2;
    return {{0, front}, {length - (max_length - front), length}};
  }
  fail("{} has {} tokens, more than {}; raise the limit, or set truncation to left or right", where,
       length, max_length);
}

}  // namespace muoncore::data
