// What a trainer needs of a model and a batch of right-padded sequences: log-probabilities (and
// entropy) of the response tokens. Only the hidden states that predict a response token go through
// the output layer.
#pragma once

#include <torch/types.h>

#include "muoncore/rl/log_probs.h"

namespace muoncore::models {
class CausalLM;
}

namespace muoncore::rl {

// ids [B, T] int64, response_mask [B, T]: 1 at response tokens; column 0 must be 0, nothing
// precedes it. Returns [B, T] tensors aligned with ids (log_probs[b, t] is that of ids[b, t] given
// what precedes it), 0 where the mask is 0. With gradients unless the caller disables them.
TokenLogProbs response_log_probs(models::CausalLM& model, const at::Tensor& ids,
                                 const at::Tensor& response_mask, double temperature = 1.0,
                                 bool with_entropy = false);

}  // namespace muoncore::rl
