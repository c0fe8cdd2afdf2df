// Counter-based random numbers: every value is a pure function of (key, counter), so a draw does
// not depend on how many draws came before it, on batching, on threads or on the world size. No
// code of this project uses a default generator.
//
// Philox 4x32 with 10 rounds. Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy
// as 1, 2, 3" (SC11), section 3.3 and its known-answer vectors.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace muoncore {

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// 64-bit hash of a name (FNV-1a, then mixed), for streams keyed by a parameter's or a purpose's
// name.
uint64_t hash_name(std::string_view name);

// One stream of numbers. The key is made of any number of words: CounterRng({seed,
// hash_name("sample"), step, prompt}). Order and count of the words matter.
class CounterRng {
 public:
  explicit CounterRng(std::initializer_list<uint64_t> key_words);

  uint64_t bits(uint64_t index) const;               // 64 random bits of draw `index`
  double uniform(uint64_t index) const;              // in [0, 1), 53 bits
  double normal(uint64_t index) const;               // standard normal (Box-Muller on draw `index`)
  uint64_t below(uint64_t index, uint64_t n) const;  // in [0, n), unbiased to 2^-64; n > 0

 private:
  uint64_t key_;
  uint64_t high_;
};

}  // namespace muoncore
