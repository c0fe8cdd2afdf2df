// Errors with context. Every refusal of this project is one `Error` with one clear sentence: what
// was found, where, and what is allowed. The program prints it as `error: <sentence>` and ends with
// status 1 (2 for a usage error).
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muoncore {

// Thrown for everything that a user can put right: config, checkpoint, data, environment.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw Error(fmt::format(message, std::forward<Args>(args)...));
}

// check(condition, "tensor {} has {} rows", name, rows): throws `Error` when the condition does not
// hold. Always on.
template <typename... Args>
void check(bool condition, fmt::format_string<Args...> message, Args&&... args) {
  if (!condition) [[unlikely]]
    throw Error(fmt::format(message, std::forward<Args>(args)...));
}

// The candidate with the smallest edit distance to `word`, or "" when none is near (more than a
// third of its letters would have to change). For "did you mean".
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace muoncore
