// Rollouts: responses sampled from a model with a key-value cache. Each distinct prompt is run once
// and repeated for its samples; rows that are finished leave the batch. Which tokens a row gets
// does not depend on the rows beside it (but for the last bits of the logits, which depend on the
// shapes of the matrix products).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "muoncore/rl/sampling.h"

namespace muoncore::models {
class CausalLM;
}
namespace muoncore::data {
class Tokenizer;
}

namespace muoncore::rl {

struct RolloutOptions {
  SamplingOptions sampling;
  int64_t n = 1;                  // samples of each prompt (verl: rollout.n)
  int64_t max_new_tokens = 16;    // verl: data.max_response_length
  std::vector<int64_t> stop_ids;  // eos and others; the stop token is part of the response
  int64_t pad_id = 0;             // fills ids after the response
  int64_t max_batch_rows = 512;   // rows decoded at once
  uint64_t seed = 0;
  uint64_t step = 0;          // training step, part of the random key
  uint64_t first_prompt = 0;  // key of prompts[0]; prompts[i] has first_prompt + i
};

enum class FinishReason { kStop, kLength };

// N = prompts * n rows; row i is sample i % n of prompt i / n. T: longest prompt + response of the
// batch.
struct Rollout {
  at::Tensor ids;  // [N, T] int64: prompt, response, then pad_id
  at::Tensor
      response_mask;     // [N, T] fp32: 1 where ids holds a response token (stop token included)
  at::Tensor log_probs;  // [N, T] fp32: at a response token its log-probability at the sampling
                         // temperature, else 0
  std::vector<int64_t> prompt_lengths;       // [N]
  std::vector<int64_t> response_lengths;     // [N], >= 1
  std::vector<FinishReason> finish_reasons;  // [N]

  int64_t rows() const { return static_cast<int64_t>(prompt_lengths.size()); }
  std::vector<int64_t> response(int64_t row) const;  // ids of the response, stop token included
};

// No gradients are recorded; the model's training flag is left alone. Throws on an empty prompt, an
// id outside the vocabulary, a prompt + max_new_tokens beyond the model's max_position_embeddings,
// and non-finite logits.
Rollout generate(models::CausalLM& model, const std::vector<std::vector<int64_t>>& prompts,
                 const RolloutOptions& options);

// Text of every response, special tokens (the stop token among them) left out.
std::vector<std::string> response_texts(const Rollout& rollout, const data::Tokenizer& tokenizer);

// One response of one prompt, token by token: `on_token` gets each id as it is drawn and returns
// false to stop. Uses n = 1. Why it ended: a stop id, or the length (also when on_token said so).
FinishReason generate_streaming(models::CausalLM& model, const std::vector<int64_t>& prompt,
                                const RolloutOptions& options,
                                const std::function<bool(int64_t id)>& on_token);

}  // namespace muoncore::rl
