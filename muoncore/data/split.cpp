#include "muoncore/data/split.h"

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::data {

HeldOutSplit::HeldOutSplit(std::string_view task, int64_t n, int64_t eval_size)
    : order_(CounterRng({hash_name(task), hash_name("held-out")}), n),
      n_(n),
      eval_size_(eval_size),
      held_out_(std::max(eval_size, n / 10)) {
  check(eval_size >= 1 && eval_size <= n / 2,
        "the task {} has {} different prompts: its eval_size must be between 1 and {}, not {}",
        task, n, n / 2, eval_size);
}

int64_t HeldOutSplit::train_item(uint64_t seed, std::string_view purpose, int64_t index) const {
  int64_t item = shuffled_item(seed, hash_name(purpose), index, train_size(), /*shuffle=*/true);
  return order_(held_out_ + item);
}

int64_t HeldOutSplit::eval_item(int64_t index) const {
  check(index >= 0 && index < eval_size_, "held-out prompt {} of {} was asked for", index,
        eval_size_);
  return order_(index);
}

}  // namespace muoncore::data
