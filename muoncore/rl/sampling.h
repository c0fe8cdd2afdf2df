// The next token from logits: greedy, temperature, top-k, top-p. Every draw comes from a
// counter-based stream keyed (seed, step, prompt, sample, position): the same row draws the same
// numbers in any batch and on any machine.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace muoncore::rl {

struct SamplingOptions {
  // 0: greedy (the lowest id among the largest logits); top_k and top_p then do nothing
  double temperature = 1.0;
  int64_t top_k = -1;  // keep the k largest logits, and all that tie with the k-th; -1: all
  // then keep the fewest most likely tokens whose probabilities reach top_p; 1: all
  double top_p = 1.0;
};

// Throws on values out of range, naming the option.
void check_sampling_options(const SamplingOptions& options);

// Names a row's stream of random numbers.
struct SampleKey {
  uint64_t seed = 0;
  uint64_t step = 0;    // the training step of the rollout
  uint64_t prompt = 0;  // index of the prompt in that step's batch
  uint64_t sample = 0;  // index of the sample within its prompt
};

// Draw `position` (0: the first response token) of the stream of `key`, in [0, 1).
double sample_uniform(const SampleKey& key, uint64_t position);

// Ids that truncation keeps for one row of V logits, most likely first, ties by the lower id
// (temperature > 0).
std::vector<int64_t> kept_tokens(const float* logits, int64_t vocabulary,
                                 const SamplingOptions& options);

struct SampledTokens {
  std::vector<int64_t> ids;      // [B]
  std::vector<float> log_probs;  // [B] log softmax(logits / temperature)[id], before truncation
                                 // (temperature 1 if greedy)
};

// logits [B, V] (moved to CPU fp32), uniforms [B] in [0, 1). Rows are independent, bit for bit.
// Throws when a row holds a NaN or an infinity above; a logit of -inf is never drawn.
SampledTokens sample_tokens(const at::Tensor& logits, const std::vector<double>& uniforms,
                            const SamplingOptions& options);

}  // namespace muoncore::rl
