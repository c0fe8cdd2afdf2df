// A permutation of [0, n) with random access in O(1) memory: position k of an epoch is computed,
// not stored, so a run resumes at any position.
#pragma once

#include <cstdint>

#include "muoncore/core/rng.h"

namespace muoncore::data {

// A four-round Feistel network over the next power of four, walked until it lands below n (Black,
// Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002, method 2). The round function is
// the stream of `rng`.
class KeyedPermutation {
 public:
  KeyedPermutation(const CounterRng& rng, int64_t n);  // n >= 1
  int64_t operator()(int64_t position) const;          // position in [0, n)

 private:
  CounterRng rng_;
  uint64_t n_;
  int half_bits_;
};

// Position k of endless epochs over n items -> item in [0, n): epoch k / n is permuted by a key of
// (seed, purpose, epoch), or left in order.
int64_t shuffled_item(uint64_t seed, uint64_t purpose, int64_t position, int64_t n, bool shuffle);

}  // namespace muoncore::data
