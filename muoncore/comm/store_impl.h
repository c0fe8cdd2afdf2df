// For files of comm/ that hand the store to c10d.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "muoncore/comm/store.h"

namespace muoncore::comm {

struct Store::Impl {
  c10::intrusive_ptr<c10d::Store> store;
  std::string address;
  int port = 0;
};

// What c10d or gloo threw, in one line without source positions and stack traces.
std::string plain_text(const std::exception& e);

}  // namespace muoncore::comm
