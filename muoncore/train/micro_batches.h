// How the rows of a mini-batch are cut into micro-batches, and the cutting itself.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace muoncore::train {

// Rows 0 .. lengths.size()-1 in micro-batches of at most `rows` (>= 1; none: all at once), each row
// in exactly one. Rows are taken by ascending length (ties by index): each micro-batch is cut to
// its own longest row, so little is padded. No rows: no micro-batch.
std::vector<std::vector<int64_t>> split_rows(const std::vector<int64_t>& lengths,
                                             std::optional<int64_t> rows);

// Rows `rows` of x [N, T] (or [N]), columns [0, width): a copy on x's device.
at::Tensor take_rows(const at::Tensor& x, const std::vector<int64_t>& rows, int64_t width);

// The longest of the given rows.
int64_t longest(const std::vector<int64_t>& lengths, const std::vector<int64_t>& rows);

}  // namespace muoncore::train
