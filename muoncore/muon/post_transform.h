// What may happen to an orthogonalized matrix before its second moment and scale. Per matrix: every
// slice of a batch is one of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace muoncore::muon {

enum class PostTransform {
  kNone,
  // Muon+ (arXiv 2602.21545): every row, or column, O_i / sqrt(||O_i||^2 + 1e-7). Rows then have
  // the length 1 whatever the shape, so `spectral` no longer means an update RMS of 1 for tall
  // matrices (for wide ones after columns).
  kRows,
  kColumns,
  kColumnsRows,  // columns, then rows
  kRowsColumns,  // rows, then columns
  // O sqrt(min(rows, cols)) / ||O||: the norm that an exactly orthogonal matrix has. Source:
  // nanochat's MuonAdamW. A norm below 1e-7 maps to zero.
  kFrobenius,
};
// none, muon_plus_rows, muon_plus_columns, muon_plus_columns_rows, muon_plus_rows_columns,
// frobenius; throws, naming the words.
PostTransform parse_post_transform(std::string_view text);

// update_: [..., rows, cols], fp32 or fp64, rewritten in place.
void apply_post_transform_(const at::Tensor& update_, PostTransform transform);

}  // namespace muoncore::muon
