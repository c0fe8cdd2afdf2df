// Sums whose bytes do not depend on the number of threads: chunks of a fixed size, each summed in a
// fixed order, the partial sums added from first to last. (ATen's sum() splits by thread count.)
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace muoncore::optim {

constexpr int64_t kSumChunk = 16384;

// The sum over i in [0, n) of term(i), a double; `term` may be called from several threads at once.
template <typename Term>
double chunked_sum(int64_t n, const Term& term) {
  constexpr int64_t kLanes = 8;  // independent accumulators, so that the compiler can vectorize
  const int64_t chunks = (n + kSumChunk - 1) / kSumChunk;
  std::vector<double> partial(chunks);
  at::parallel_for(0, chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const int64_t begin = chunk * kSumChunk, end = std::min(n, begin + kSumChunk);
      std::array<double, kLanes> lanes{};
      int64_t i = begin;
      for (; i + kLanes <= end; i += kLanes)
        for (int64_t k = 0; k < kLanes; ++k) lanes[k] += term(i + k);
      for (int64_t k = 0; i < end; ++i, ++k) lanes[k] += term(i);
      double sum = 0.0;
      for (double lane : lanes) sum += lane;
      partial[chunk] = sum;
    }
  });
  double sum = 0.0;
  for (double value : partial) sum += value;
  return sum;
}

}  // namespace muoncore::optim
