// Training and held-out items of a generated task, disjoint by construction.
#pragma once

#include <cstdint>
#include <string_view>

#include "muoncore/data/permutation.h"

namespace muoncore::data {

// n items in an order that depends on the task's name alone. The first max(eval_size, n / 10) are
// held out, so that runs of any seed, and of any smaller eval_size, train on none that another one
// evaluates on.
class HeldOutSplit {
 public:
  // Throws unless 1 <= eval_size <= n / 2.
  HeldOutSplit(std::string_view task, int64_t n, int64_t eval_size);

  int64_t train_size() const { return n_ - held_out_; }
  int64_t eval_size() const { return eval_size_; }
  int64_t train_item(uint64_t seed, std::string_view purpose,
                     int64_t index) const;  // index >= 0, epochs
  int64_t eval_item(int64_t index) const;   // index < eval_size()

 private:
  KeyedPermutation order_;
  int64_t n_;
  int64_t eval_size_;
  int64_t held_out_;
};

}  // namespace muoncore::data
