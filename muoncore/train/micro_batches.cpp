#include "muoncore/train/micro_batches.h"

#include <algorithm>
#include <numeric>

namespace muoncore::train {

std::vector<std::vector<int64_t>> split_rows(const std::vector<int64_t>& lengths,
                                             std::optional<int64_t> rows) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto all = static_cast<int64_t>(lengths.size());
  if (all == 0) return {};
  const int64_t each = std::min(rows.value_or(all), all);
  if (each == all) return {order};
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return lengths[a] < lengths[b]; });
  std::vector<std::vector<int64_t>> batches;
  for (int64_t first = 0; first < all; first += each) {
    const auto begin = order.begin() + first;
    batches.emplace_back(begin, begin + std::min(each, all - first));
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
