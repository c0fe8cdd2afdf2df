// Log-probabilities and entropy of tokens from logits, in one pass and without a copy of the
// logits: the backward pass makes the one gradient that it must, chunk by chunk. A vocabulary of
// 150k would otherwise cost three such copies.
#pragma once

#include <torch/types.h>

namespace muoncore::rl {

struct TokenLogProbs {
  at::Tensor log_probs;  // [...], log softmax(logits / temperature)[id]
  at::Tensor entropy;    // [...], logsumexp(z) - sum softmax(z) z with z = logits / temperature;
                         // undefined if not asked
};

// logits [..., V] (fp64, fp32, bf16 or fp16; contiguous or not), ids [...] int64 in [0, V).
// Results: fp64 for fp64 logits, otherwise fp32; a logit of -inf is a token of probability 0.
// Differentiable once in the logits (gradient in their dtype). Keeps the logits and two numbers per
// row for the backward pass: do not write to the logits before it. Throws on shapes that do not
// match, an id out of range and temperature <= 0.
TokenLogProbs token_log_probs(const at::Tensor& logits, const at::Tensor& ids,
                              double temperature = 1.0, bool with_entropy = false);

}  // namespace muoncore::rl
