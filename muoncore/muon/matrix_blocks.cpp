#include "muoncore/muon/matrix_blocks.h"

#include <ATen/ops/empty.h>

#include <numeric>

#include <fmt/ranges.h>

#include "muoncore/core/check.h"

namespace muoncore::muon {
namespace {

int64_t sum_rows(const RowBlocks& blocks) {
  return std::accumulate(blocks.rows.begin(), blocks.rows.end(), int64_t{0});
}

// [..., rows, cols] -> [batch, groups, rows_of_group, cols]
at::Tensor view_groups(const at::Tensor& x, const RowBlocks& blocks) {
  const int64_t group = sum_rows(blocks);
  const int64_t batch = x.dim() == 3 ? x.size(0) : 1;
  return x.reshape({batch, x.size(-2) / group, group, x.size(-1)});
}

}  // namespace

void check_blocks(const RowBlocks& blocks, int64_t rows, const std::string& name) {
  check(!blocks.per_group || !blocks.rows.empty(),
        "{}: a split per group needs the row counts of a group", name);
  if (blocks.rows.empty()) return;
  for (int64_t r : blocks.rows)
    check(r > 0, "{}: a block of {} rows in [{}] cannot be orthogonalized", name, r,
          fmt::join(blocks.rows, ", "));
  const int64_t sum = sum_rows(blocks);
  check(rows % sum == 0, "{}: {} rows are not a multiple of the blocks [{}], which sum to {}", name,
        rows, fmt::join(blocks.rows, ", "), sum);
}

int64_t count_matrices(at::IntArrayRef shape, const RowBlocks& blocks) {
  const int64_t batch = shape.size() == 3 ? shape[0] : 1;
  if (blocks.rows.empty()) return batch;
  const int64_t groups = blocks.per_group ? shape[shape.size() - 2] / sum_rows(blocks) : 1;
  return batch * groups * static_cast<int64_t>(blocks.rows.size());
}

std::vector<at::Tensor> split_blocks(const at::Tensor& x, const RowBlocks& blocks) {
  if (blocks.rows.empty()) return {x};
  at::Tensor grouped = view_groups(x, blocks);
  const int64_t batch = grouped.size(0), groups = grouped.size(1), cols = grouped.size(3);
  std::vector<at::Tensor> parts;
  int64_t start = 0;
  for (int64_t rows : blocks.rows) {
    at::Tensor part = grouped.narrow(2, start, rows);
    if (blocks.per_group)
      parts.push_back(part.reshape({batch * groups, rows, cols}));
    else if (x.dim() == 3)
      parts.push_back(part.reshape({batch, groups * rows, cols}));
    else
      parts.push_back(part.reshape({groups * rows, cols}));
    start += rows;
  }
  return parts;
}

at::Tensor merge_blocks(const std::vector<at::Tensor>& parts, const RowBlocks& blocks,
                        at::IntArrayRef shape) {
  if (blocks.rows.empty()) return parts.at(0);
  at::Tensor out = at::empty(shape, parts.at(0).options());
  at::Tensor grouped = view_groups(out, blocks);
  int64_t start = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    const int64_t rows = blocks.rows[k];
    grouped.narrow(2, start, rows)
        .copy_(parts[k].reshape({grouped.size(0), grouped.size(1), rows, grouped.size(3)}));
    start += rows;
  }
  return out;
}

}  // namespace muoncore::muon
