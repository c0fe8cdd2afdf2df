// The set-up of reference/rl.md section 2.4: eight rollouts in two groups, unequal lengths, fp64.
#pragma once

#include <vector>

#include <torch/types.h>

namespace muoncore::rl::golden {

constexpr int64_t kRows = 8, kWidth = 4;
inline const std::vector<double> kRewards = {1, 0, 0, 1, 1, 1, 1, 0};
inline const std::vector<int64_t> kGroups = {0, 0, 0, 0, 1, 1, 1, 1};
inline const std::vector<int64_t> kLengths = {4, 3, 2, 4, 1, 4, 3, 2};

struct Batch {
  at::Tensor log_probs, old_log_probs, ref_log_probs, mask;  // [8, 4] fp64; log_probs is a leaf
};

inline Batch batch() {
  auto zeros = [] { return at::zeros({kRows, kWidth}, at::kDouble); };
  Batch b{zeros(), zeros(), zeros(), zeros()};
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t t = 0; t < kWidth; ++t) {
      double old = -(0.1 + 0.05 * static_cast<double>((3 * i + 5 * t) % 7));
      b.old_log_probs[i][t] = old;
      b.log_probs[i][t] = old + 0.1 * static_cast<double>((5 * i + 3 * t) % 9 - 4);
      b.ref_log_probs[i][t] = old + 0.05 * static_cast<double>((i + 2 * t) % 5 - 2);
      b.mask[i][t] = t < kLengths[static_cast<size_t>(i)] ? 1.0 : 0.0;
    }
  }
  b.log_probs.set_requires_grad(true);
  return b;
}

}  // namespace muoncore::rl::golden
