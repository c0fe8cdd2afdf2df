// verl's data.truncation: what happens to a sequence that is too long.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muoncore::data {

// Throws `Error` for a name that is not one of `allowed`, with the nearest.
void check_choice(std::string_view key, const std::string& value,
                  const std::vector<std::string>& allowed);

// Which of `length` items stay, as up to two ranges [first, second): all when they fit. error:
// throws, naming `where`; left: the last ones stay; right: the first ones; middle: the first
// max_length / 2 and the last of the rest.
std::vector<std::pair<int64_t, int64_t>> kept_ranges(int64_t length, int64_t max_length,
                                                     const std::string& truncation,
                                                     std::string_view where);

template <typename T>
std::vector<T> keep(const std::vector<T>& items,
                    const std::vector<std::pair<int64_t, int64_t>>& ranges) {
  std::vector<T> kept;
  for (const auto& [first, last] : ranges)
    kept.insert(kept.end(), items.begin() + first, items.begin() + last);
  return kept;
}

}  // namespace muoncore::data
