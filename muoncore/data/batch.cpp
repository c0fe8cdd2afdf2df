#include "muoncore/data/batch.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::data {

Batch collate(const std::vector<SftExample>& examples, int64_t padding_id) {
  check(!examples.empty(), "a batch needs at least one example");
  int64_t longest = 0;
  for (size_t i = 0; i < examples.size(); ++i) {
    const SftExample& example = examples[i];
    check(!example.ids.empty(), "example {} of the batch is empty", i);
    check(example.ids.size() == example.loss_mask.size(),
          "example {} of the batch has {} ids and {} mask entries", i, example.ids.size(),
          example.loss_mask.size());
    check(example.loss_mask[0] == 0, "example {} of the batch has its first token as a target", i);
    longest = std::max(longest, static_cast<int64_t>(example.ids.size()));
  }
  auto rows = static_cast<int64_t>(examples.size());
  Batch batch;
  batch.ids = at::full({rows, longest}, padding_id, at::kLong);
  batch.loss_mask = at::zeros({rows, longest}, at::kBool);
  batch.lengths = at::empty({rows}, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    const SftExample& example = examples[static_cast<size_t>(row)];
    std::copy(example.ids.begin(), example.ids.end(),
              batch.ids.data_ptr<int64_t>() + row * longest);
    bool* mask = batch.loss_mask.data_ptr<bool>() + row * longest;
    for (size_t t = 0; t < example.loss_mask.size(); ++t) {
      mask[t] = example.loss_mask[t] != 0;
      batch.target_tokens += mask[t];
    }
    batch.lengths.data_ptr<int64_t>()[row] = static_cast<int64_t>(example.ids.size());
  }
  return batch;
}

Batch sft_batch(const SftData& data, int64_t first, int64_t count, int64_t padding_id) {
  std::vector<SftExample> examples;
  for (int64_t i = 0; i < count; ++i) examples.push_back(data.example(first + i));
  return collate(examples, padding_id);
}

}  // namespace muoncore::data
