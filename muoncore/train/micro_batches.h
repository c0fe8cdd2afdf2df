// How the rows of a mini-batch are cut into micro-batches, and the cutting itself.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muoncore::train {

// Both may be set; none set: one micro-batch.
struct MicroBatchLimits {
  std::optional<int64_t> rows;    // verl: *_micro_batch_size_per_gpu
  std::optional<int64_t> tokens;  // verl: *_max_token_len_per_gpu under use_dynamic_bsz; padding
                                  // counts: rows times the longest row
};

// Rows 0 .. lengths.size()-1, each in exactly one micro-batch. Without a token limit the order is
// kept; with one, rows are taken by ascending length (ties by index), so that little is padded.
// Throws Error when a row alone is longer than the token limit; `key` (the option's path) names it.
std::vector<std::vector<int64_t>> split_rows(const std::vector<int64_t>& lengths,
                                             const MicroBatchLimits& limits,
                                             const std::string& key);

// Rows `rows` of x [N, T] (or [N]), columns [0, width): a copy on x's device.
at::Tensor take_rows(const at::Tensor& x, const std::vector<int64_t>& rows, int64_t width);

// The longest of the given rows.
int64_t longest(const std::vector<int64_t>& lengths, const std::vector<int64_t>& rows);

}  // namespace muoncore::train
