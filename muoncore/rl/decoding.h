// The inner loop of a rollout: a batch of rows that grow by one token at a time.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "muoncore/models/causal_lm.h"
#include "muoncore/rl/rollout.h"

namespace muoncore::rl {

struct Response {
  std::vector<int64_t> ids;
  std::vector<float> log_probs;
  FinishReason reason = FinishReason::kLength;
};

// Row r answers prompts[row_prompts[r]] with the random stream keys[r]. Each prompt is run once.
// Arguments are taken as checked (rollout.h); model, prompts and options must outlive it. No
// gradients are recorded.
class Decoding {
 public:
  Decoding(models::CausalLM& model, const std::vector<const std::vector<int64_t>*>& prompts,
           const std::vector<int64_t>& row_prompts, std::vector<SampleKey> keys,
           const RolloutOptions& options);

  bool done() const { return open_ == 0; }

  // Draws the next token of every row that is not finished. The model runs on a token only when one
  // more is wanted.
  void step();

  const std::vector<Response>& responses() const { return responses_; }  // in the order of the rows

 private:
  void prefill(const std::vector<const std::vector<int64_t>*>& prompts);
  bool finished(const Response& response) const;
  void draw();
  void drop_finished_rows();
  void advance();

  models::CausalLM& model_;
  const RolloutOptions& options_;
  at::Device device_;
  std::vector<SampleKey> keys_;
  std::vector<Response> responses_;
  std::vector<size_t> slots_;  // row of the batch -> row of responses_
  models::KvCache cache_;
  at::Tensor logits_;  // [slots, V], of the next token
  uint64_t position_ = 0;
  int64_t open_ = -1;  // rows not finished; unknown before the first draw
};

}  // namespace muoncore::rl
