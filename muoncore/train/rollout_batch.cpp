#include "muoncore/train/rollout_batch.h"

#include <numeric>

namespace muoncore::train {

std::vector<int64_t> RolloutBatch::lengths() const {
  std::vector<int64_t> out(rollout.prompt_lengths);
  for (size_t i = 0; i < out.size(); ++i) out[i] += rollout.response_lengths[i];
  return out;
}

int64_t RolloutBatch::tokens() const {
  const std::vector<int64_t> all = lengths();
  return std::accumulate(all.begin(), all.end(), int64_t{0});
}

}  // namespace muoncore::train
