#include "muoncore/rl/rollout.h"

#include <algorithm>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/data/tokenizer.h"
#include "muoncore/models/causal_lm.h"
#include "muoncore/rl/decoding.h"

namespace muoncore::rl {
namespace {

void check_options(const models::CausalLM& model, const RolloutOptions& o) {
  check_sampling_options(o.sampling);
  check(o.n >= 1, "rollout n is {}: at least one sample of each prompt", o.n);
  check(o.max_new_tokens >= 1, "max_new_tokens is {}: it must be at least 1", o.max_new_tokens);
  check(o.max_batch_rows >= 1, "max_batch_rows is {}: it must be at least 1", o.max_batch_rows);
  check(o.pad_id >= 0 && o.pad_id < model.config().vocab_size,
        "pad_id is {}, outside the model's vocabulary of {}", o.pad_id, model.config().vocab_size);
}

void check_prompts(const models::CausalLM& model, const std::vector<std::vector<int64_t>>& prompts,
                   const RolloutOptions& options) {
  int64_t vocabulary = model.config().vocab_size, most = model.config().max_position_embeddings;
  for (size_t p = 0; p < prompts.size(); ++p) {
    int64_t length = static_cast<int64_t>(prompts[p].size());
    check(length > 0, "prompt {} is empty: there is nothing to continue", p);
    check(length + options.max_new_tokens <= most,
          "prompt {} has {} tokens and {} new ones were asked for: the model has "
          "max_position_embeddings {}",
          p, length, options.max_new_tokens, most);
    for (int64_t id : prompts[p])
      check(id >= 0 && id < vocabulary,
            "prompt {} holds the token id {}, outside the model's vocabulary of {}", p, id,
            vocabulary);
  }
}

// Responses of the rollout rows [first, first + count).
std::vector<Response> decode_rows(models::CausalLM& model,
                                  const std::vector<std::vector<int64_t>>& prompts, int64_t first,
                                  int64_t count, const RolloutOptions& options) {
  std::vector<const std::vector<int64_t>*> distinct;
  std::vector<int64_t> row_prompts;
  std::vector<SampleKey> keys;
  int64_t first_prompt = first / options.n;
  for (int64_t row = first; row < first + count; ++row) {
    int64_t p = row / options.n;
    if (p - first_prompt == static_cast<int64_t>(distinct.size()))
      distinct.push_back(&prompts[static_cast<size_t>(p)]);
    row_prompts.push_back(p - first_prompt);
    keys.push_back({options.seed, options.step, options.first_prompt + static_cast<uint64_t>(p),
                    static_cast<uint64_t>(row % options.n)});
  }
  Decoding decoding(model, distinct, row_prompts, std::move(keys), options);
  while (!decoding.done()) decoding.step();
  return decoding.responses();
}

Rollout assemble(const std::vector<std::vector<int64_t>>& prompts,
                 const std::vector<Response>& responses, const RolloutOptions& options) {
  Rollout out;
  int64_t rows = static_cast<int64_t>(responses.size()), width = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const Response& r = responses[static_cast<size_t>(row)];
    const auto& prompt = prompts[static_cast<size_t>(row / options.n)];
    out.prompt_lengths.push_back(static_cast<int64_t>(prompt.size()));
    out.response_lengths.push_back(static_cast<int64_t>(r.ids.size()));
    out.finish_reasons.push_back(r.reason);
    width = std::max(width, out.prompt_lengths.back() + out.response_lengths.back());
  }
  out.ids = at::full({rows, width}, options.pad_id, at::kLong);
  out.response_mask = at::zeros({rows, width}, at::kFloat);
  out.log_probs = at::zeros({rows, width}, at::kFloat);
  for (int64_t row = 0; row < rows; ++row) {
    const Response& r = responses[static_cast<size_t>(row)];
    const auto& prompt = prompts[static_cast<size_t>(row / options.n)];
    int64_t start = row * width, answer = start + static_cast<int64_t>(prompt.size());
    std::copy(prompt.begin(), prompt.end(), out.ids.mutable_data_ptr<int64_t>() + start);
    std::copy(r.ids.begin(), r.ids.end(), out.ids.mutable_data_ptr<int64_t>() + answer);
    std::copy(r.log_probs.begin(), r.log_probs.end(),
              out.log_probs.mutable_data_ptr<float>() + answer);
    std::fill_n(out.response_mask.mutable_data_ptr<float>() + answer, r.ids.size(), 1.0f);
  }
  return out;
}

}  // namespace

std::vector<int64_t> Rollout::response(int64_t row) const {
  size_t at = static_cast<size_t>(row);
  const int64_t* begin = ids.const_data_ptr<int64_t>() + row * ids.size(1) + prompt_lengths[at];
  return {begin, begin + response_lengths[at]};
}

Rollout generate(models::CausalLM& model, const std::vector<std::vector<int64_t>>& prompts,
                 const RolloutOptions& options) {
  check_options(model, options);
  check_prompts(model, prompts, options);
  int64_t rows = static_cast<int64_t>(prompts.size()) * options.n;
  std::vector<Response> responses;
  for (int64_t first = 0; first < rows; first += options.max_batch_rows) {
    int64_t count = std::min(options.max_batch_rows, rows - first);
    for (auto& r : decode_rows(model, prompts, first, count, options))
      responses.push_back(std::move(r));
  }
  return assemble(prompts, responses, options);
}

std::vector<std::string> response_texts(const Rollout& rollout, const data::Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (int64_t row = 0; row < rollout.rows(); ++row)
    texts.push_back(tokenizer.decode(rollout.response(row)));
  return texts;
}

FinishReason generate_streaming(models::CausalLM& model, const std::vector<int64_t>& prompt,
                                const RolloutOptions& options,
                                const std::function<bool(int64_t id)>& on_token) {
  check_options(model, options);
  check_prompts(model, {prompt}, options);
  Decoding decoding(model, {&prompt}, {0}, {{options.seed, options.step, options.first_prompt, 0}},
                    options);
  bool wanted = true;
  while (!decoding.done() && wanted) {
    decoding.step();
    wanted = on_token(decoding.responses().front().ids.back());
  }
  return decoding.responses().front().reason;
}

}  // namespace muoncore::rl
