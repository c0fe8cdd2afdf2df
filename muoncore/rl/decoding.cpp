#include "muoncore/rl/decoding.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace muoncore::rl {
namespace {

// A share of finished rows (1 / kCompactShare) at which they leave the batch: dropping copies the
// cache, so it must not happen at every token.
constexpr int64_t kCompactShare = 8;

at::Tensor to_device(const std::vector<int64_t>& values, at::IntArrayRef shape, at::Device device) {
  at::Tensor t = at::empty(shape, at::kLong);
  std::copy(values.begin(), values.end(), t.mutable_data_ptr<int64_t>());
  return t.to(device);
}

int64_t longest(const std::vector<const std::vector<int64_t>*>& prompts) {
  size_t length = 0;
  for (const auto* p : prompts) length = std::max(length, p->size());
  return static_cast<int64_t>(length);
}

}  // namespace

Decoding::Decoding(models::CausalLM& model, const std::vector<const std::vector<int64_t>*>& prompts,
                   const std::vector<int64_t>& row_prompts, std::vector<SampleKey> keys,
                   const RolloutOptions& options)
    : model_(model),
      options_(options),
      device_(model.parameters().front().device()),
      keys_(std::move(keys)),
      responses_(keys_.size()),
      slots_(keys_.size()),
      cache_(model.config(), static_cast<int64_t>(prompts.size()),
             longest(prompts) + options.max_new_tokens, model.dtype(), device_) {
  std::iota(slots_.begin(), slots_.end(), size_t{0});
  at::NoGradGuard no_grad;
  prefill(prompts);
  cache_.select(row_prompts);
  logits_ = logits_.index_select(
      0, to_device(row_prompts, {static_cast<int64_t>(row_prompts.size())}, device_));
}

void Decoding::step() {
  at::NoGradGuard no_grad;
  if (position_ > 0) {
    drop_finished_rows();
    advance();
  }
  draw();
}

void Decoding::prefill(const std::vector<const std::vector<int64_t>*>& prompts) {
  int64_t rows = static_cast<int64_t>(prompts.size()), width = longest(prompts);
  std::vector<int64_t> padded(static_cast<size_t>(rows * width), options_.pad_id);
  std::vector<int64_t> lengths, last;
  for (int64_t p = 0; p < rows; ++p) {
    const auto& ids = *prompts[static_cast<size_t>(p)];
    std::copy(ids.begin(), ids.end(), padded.begin() + p * width);
    lengths.push_back(static_cast<int64_t>(ids.size()));
    last.push_back(p * width + lengths.back() - 1);
  }
  at::Tensor hidden = model_.forward_hidden(to_device(padded, {rows, width}, device_), &cache_);
  cache_.set_lengths(lengths);
  logits_ = model_.logits(hidden.flatten(0, 1).index_select(0, to_device(last, {rows}, device_)));
}

bool Decoding::finished(const Response& r) const {
  return r.reason == FinishReason::kStop ||
         static_cast<int64_t>(r.ids.size()) == options_.max_new_tokens;
}

void Decoding::draw() {
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

void Decoding::drop_finished_rows() {
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

void Decoding::advance() {
  std::vector<int64_t> last;
  for (size_t row : slots_) last.push_back(responses_[row].ids.back());
  int64_t rows = static_cast<int64_t>(last.size());
  at::Tensor hidden = model_.forward_hidden(to_device(last, {rows, 1}, device_), &cache_);
  logits_ = model_.logits(hidden.select(1, 0));
}

}  // namespace muoncore::rl
