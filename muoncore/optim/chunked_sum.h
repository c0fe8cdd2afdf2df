// Sums whose bytes do not depend on the number of threads: chunks of a fixed size, each summed in a
// fixed order, the partial sums added from first to last. (ATen's sum() splits by thread count.)
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace muoncore::optim {

constexpr int64_t kSumChunk = 65536;

// term(begin) + ... + term(end - 1), in eight independent accumulators so that the compiler can
// vectorize.
template <typename Term>
inline double lane_sum(int64_t begin, int64_t end, const Term& term) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes)
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] += term(i + k);
  for (int64_t k = 0; i < end; ++i, ++k) lanes[k] += term(i);
  double sum = 0.0;
  for (double lane : lanes) sum += lane;
  return sum;
}

// The sum of block(begin, end) over the chunks of [0, n); `block` may be called from several
// threads at once.
template <typename Block>
double chunked_sum(int64_t n, const Block& block) {
  const int64_t chunks = (n + kSumChunk - 1) / kSumChunk;
  std::vector<double> partial(chunks);
  at::parallel_for(0, chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk)
      partial[chunk] = block(chunk * kSumChunk, std::min(n, (chunk + 1) * kSumChunk));
  });
  double sum = 0.0;
  for (double value : partial) sum += value;
  return sum;
}

}  // namespace muoncore::optim
