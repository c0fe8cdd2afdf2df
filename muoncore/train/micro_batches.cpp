#include "muoncore/train/micro_batches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "muoncore/core/check.h"

namespace muoncore::train {

std::vector<std::vector<int64_t>> split_rows(const std::vector<int64_t>& lengths,
                                             const MicroBatchLimits& limits,
                                             const std::string& key) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  if (limits.tokens) {
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return lengths[a] < lengths[b]; });
  }
  std::vector<std::vector<int64_t>> batches;
  int64_t width = 0;  // of the micro-batch being filled
  for (const int64_t row : order) {
    check(!limits.tokens || lengths[row] <= *limits.tokens,
          "{}: a sequence has {} tokens, more than the {} allowed in a micro-batch", key,
          lengths[row], limits.tokens.value_or(0));
    const int64_t rows_then = batches.empty() ? 1 : static_cast<int64_t>(batches.back().size()) + 1;
    const int64_t width_then = std::max(width, lengths[row]);
    const bool full = (limits.rows && rows_then > *limits.rows) ||
                      (limits.tokens && rows_then * width_then > *limits.tokens);
    if (batches.empty() || full) {
      batches.emplace_back();
      width = lengths[row];
    } else {
      width = width_then;
    }
    batches.back().push_back(row);
  }
  return batches;
}

at::Tensor take_rows(const at::Tensor& x, const std::vector<int64_t>& rows, int64_t width) {
  const at::Tensor index = torch::tensor(rows, torch::kInt64).to(x.device());
  const at::Tensor cut = x.dim() > 1 ? x.slice(1, 0, width) : x;
  return cut.index_select(0, index);
}

int64_t longest(const std::vector<int64_t>& lengths, const std::vector<int64_t>& rows) {
  int64_t width = 0;
  for (const int64_t row : rows) width = std::max(width, lengths[row]);
  return width;
}

}  // namespace muoncore::train
