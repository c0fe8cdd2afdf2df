#include "muoncore/rl/rollout.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "muoncore/core/check.h"
#include "muoncore/data/tokenizer.h"
#include "muoncore/models/causal_lm.h"

namespace muoncore::rl {
namespace {

// A share of finished rows (1 / kCompactShare) at which they leave the batch: dropping copies the
// cache, so it must not happen at every token.
constexpr int64_t kCompactShare = 8;

struct Response {
  std::vector<int64_t> ids;
  std::vector<float> log_probs;
  FinishReason reason = FinishReason::kLength;
};

at::Tensor to_device(const std::vector<int64_t>& values, at::IntArrayRef shape, at::Device device) {
  at::Tensor t = at::empty(shape, at::kLong);
  std::copy(values.begin(), values.end(), t.mutable_data_ptr<int64_t>());
  return t.to(device);
}

// Rows being decoded together. Row r answers prompt row_prompts[r] with the random stream keys[r].
class Decoding {
 public:
  Decoding(models::CausalLM& model, const std::vector<const std::vector<int64_t>*>& prompts,
           const std::vector<int64_t>& row_prompts, std::vector<SampleKey> keys,
           const RolloutOptions& options)
      : model_(model),
        options_(options),
        keys_(std::move(keys)),
        responses_(keys_.size()),
        slots_(keys_.size()),
        cache_(model.config(), static_cast<int64_t>(prompts.size()),
               longest(prompts) + options.max_new_tokens, model.dtype(), device()) {
    for (size_t r = 0; r < slots_.size(); ++r) slots_[r] = r;
    at::NoGradGuard no_grad;
    prefill(prompts);
    cache_.select(row_prompts);
    logits_ = logits_.index_select(
        0, to_device(row_prompts, {static_cast<int64_t>(row_prompts.size())}, device()));
  }

  bool done() const { return open_ == 0; }

  // Draws the next token of every row that is not finished. The model runs on a token only when one
  // more is wanted.
  void step() {
    at::NoGradGuard no_grad;
    if (position_ > 0) {
      drop_finished_rows();
      advance();
    }
    draw();
  }

  const std::vector<Response>& responses() const { return responses_; }

 private:
  static int64_t longest(const std::vector<const std::vector<int64_t>*>& prompts) {
    size_t length = 0;
    for (const auto* p : prompts) length = std::max(length, p->size());
    return static_cast<int64_t>(length);
  }

  at::Device device() const { return model_.parameters().front().device(); }

  void prefill(const std::vector<const std::vector<int64_t>*>& prompts) {
    int64_t rows = static_cast<int64_t>(prompts.size()), width = longest(prompts);
    std::vector<int64_t> padded(static_cast<size_t>(rows * width), options_.pad_id);
    std::vector<int64_t> lengths, last;
    for (int64_t p = 0; p < rows; ++p) {
      const auto& ids = *prompts[static_cast<size_t>(p)];
      std::copy(ids.begin(), ids.end(), padded.begin() + p * width);
      lengths.push_back(static_cast<int64_t>(ids.size()));
      last.push_back(p * width + lengths.back() - 1);
    }
    at::Tensor hidden = model_.forward_hidden(to_device(padded, {rows, width}, device()), &cache_);
    cache_.set_lengths(lengths);
    logits_ =
        model_.logits(hidden.flatten(0, 1).index_select(0, to_device(last, {rows}, device())));
  }

  bool finished(const Response& r) const {
    return r.reason == FinishReason::kStop ||
           static_cast<int64_t>(r.ids.size()) == options_.max_new_tokens;
  }

  void draw() {
    std::vector<double> uniforms;
    for (size_t row : slots_) uniforms.push_back(sample_uniform(keys_[row], position_));
    SampledTokens drawn = sample_tokens(logits_, uniforms, options_.sampling);
    ++position_;
    open_ = 0;
    for (size_t i = 0; i < slots_.size(); ++i) {
      Response& r = responses_[slots_[i]];
      if (finished(r)) continue;  // waits in the batch until enough rows have finished to drop them
      r.ids.push_back(drawn.ids[i]);
      r.log_probs.push_back(drawn.log_probs[i]);
      const auto& stops = options_.stop_ids;
      if (std::find(stops.begin(), stops.end(), drawn.ids[i]) != stops.end())
        r.reason = FinishReason::kStop;
      if (!finished(r)) ++open_;
    }
  }

  void drop_finished_rows() {
    int64_t rows = static_cast<int64_t>(slots_.size());
    if ((rows - open_) * kCompactShare < rows) return;
    std::vector<int64_t> kept;
    std::vector<size_t> slots;
    for (int64_t i = 0; i < rows; ++i) {
      size_t row = slots_[static_cast<size_t>(i)];
      if (finished(responses_[row])) continue;
      kept.push_back(i);
      slots.push_back(row);
    }
    cache_.select(kept);
    slots_ = std::move(slots);
  }

  void advance() {
    std::vector<int64_t> last;
    for (size_t row : slots_) last.push_back(responses_[row].ids.back());
    int64_t rows = static_cast<int64_t>(last.size());
    at::Tensor hidden = model_.forward_hidden(to_device(last, {rows, 1}, device()), &cache_);
    logits_ = model_.logits(hidden.select(1, 0));
  }

  models::CausalLM& model_;
  const RolloutOptions& options_;
  std::vector<SampleKey> keys_;
  std::vector<Response> responses_;
  std::vector<size_t> slots_;  // row of the batch -> row of responses_
  models::KvCache cache_;
  at::Tensor logits_;  // [slots, V], of the next token
  uint64_t position_ = 0;
  int64_t open_ = -1;  // rows not finished; unknown before the first draw
};

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
