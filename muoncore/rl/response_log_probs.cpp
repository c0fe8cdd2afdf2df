#include "muoncore/rl/response_log_probs.h"

#include <fmt/ranges.h>

#include "muoncore/core/check.h"
#include "muoncore/models/causal_lm.h"

namespace muoncore::rl {

TokenLogProbs response_log_probs(models::CausalLM& model, const at::Tensor& ids,
                                 const at::Tensor& response_mask, double temperature,
                                 bool with_entropy) {
  check(ids.dim() == 2 && ids.sizes() == response_mask.sizes() && ids.size(1) >= 2,
        "token ids of shape {} came with a response mask of shape {}: both must be [rows, tokens]",
        fmt::join(ids.sizes(), "x"), fmt::join(response_mask.sizes(), "x"));
  at::Tensor mask = response_mask.to(at::kBool);
  check(!mask.select(1, 0).any().item<bool>(),
        "the response mask has a row that begins with a response token: nothing predicts it");
  int64_t rows = ids.size(0), width = ids.size(1);
  at::Tensor chosen = mask.flatten().nonzero().squeeze(1);  // flat places of the response tokens
  at::Tensor before = chosen - at::floor_divide(chosen, width) - 1;  // in [rows, width - 1]
  at::Tensor hidden = model.forward_hidden(ids.narrow(1, 0, width - 1)).flatten(0, 1);
  TokenLogProbs picked =
      token_log_probs(model.logits(hidden.index_select(0, before)),
                      ids.flatten().index_select(0, chosen), temperature, with_entropy);
  auto spread = [&](const at::Tensor& values) {
    return at::zeros({rows * width}, values.options())
        .index_copy(0, chosen, values)
        .view({rows, width});
  };
  return {spread(picked.log_probs), with_entropy ? spread(picked.entropy) : at::Tensor()};
}

}  // namespace muoncore::rl
