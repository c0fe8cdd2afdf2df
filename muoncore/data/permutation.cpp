#include "muoncore/data/permutation.h"

#include "muoncore/core/check.h"

namespace muoncore::data {
namespace {

constexpr int kRounds = 4;

}  // namespace

KeyedPermutation::KeyedPermutation(const CounterRng& rng, int64_t n) : rng_(rng), half_bits_(1) {
  check(n >= 1, "a permutation needs at least one item, not {}", n);
  n_ = static_cast<uint64_t>(n);
  while ((uint64_t{1} << (2 * half_bits_)) < n_) ++half_bits_;
}

int64_t KeyedPermutation::operator()(int64_t position) const {
  check(position >= 0 && static_cast<uint64_t>(position) < n_,
        "position {} is outside a permutation of {} items", position, n_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      uint64_t mixed = left ^ (rng_.bits((round << 32) | right) & mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits_) | right;
  } while (value >= n_);
  return static_cast<int64_t>(value);
}

int64_t shuffled_item(uint64_t seed, uint64_t purpose, int64_t position, int64_t n, bool shuffle) {
  check(position >= 0, "position {} is negative", position);
  check(n >= 1, "there are no items to draw from");
  if (!shuffle) return position % n;
  CounterRng rng({seed, purpose, static_cast<uint64_t>(position / n)});
  return KeyedPermutation(rng, n)(position % n);
}

}  // namespace muoncore::data
