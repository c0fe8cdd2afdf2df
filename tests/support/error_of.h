// What a refusal says.
#pragma once

#include <string>

#include "muoncore/core/check.h"

namespace muoncore {

// The message of the Error that `action` throws; "no error" when it throws none.
template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace muoncore
