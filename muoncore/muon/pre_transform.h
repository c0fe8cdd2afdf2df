// What may happen to a direction before it is orthogonalized. Per matrix: every slice of a batch is
// one of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace muoncore::muon {

enum class PreTransform {
  kNone,
  kSign,           // sign(U), element by element: AdaMuon, arXiv 2507.11005
  kMuonEqRows,     // D_r^-1/2 U
  kMuonEqColumns,  // U D_c^-1/2
  kMuonEqBoth,     // D_r^-1/2 U D_c^-1/2, both from the U that came in
};
// none, sign, muoneq_rows, muoneq_columns, muoneq_both; throws, naming the words.
PreTransform parse_pre_transform(std::string_view text);

// u: [..., rows, cols], fp32 or fp64. u itself for kNone, else a new tensor; u is not written.
//
// MuonEq: D_r and D_c are diagonal, the sums of squares of the rows and columns plus eps = 1e-8.
// Source: arXiv 2603.28254, which takes eps against whatever size the momentum has; here u is first
// brought to an RMS of 1 (scale-free: the result does not depend on the size of the gradients).
// Rows and columns of zeros, and a matrix of zeros, stay zero.
at::Tensor apply_pre_transform(const at::Tensor& u, PreTransform transform);

}  // namespace muoncore::muon
