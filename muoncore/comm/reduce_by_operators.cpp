#include "muoncore/comm/reduce_by_operators.h"

#include <ATen/ops/where.h>

namespace muoncore::comm {
namespace {

at::ScalarType type_of_sum(at::ScalarType row) {
  return row == at::kBFloat16 || row == at::kHalf ? at::kFloat : row;
}

}  // namespace

void reduce_by_operators(const at::Tensor& output, const std::vector<at::Tensor>& rows,
                         ReduceOp op) {
  check_reducible(rows.at(0).scalar_type(), "reduction");
  const at::ScalarType type = type_of_sum(rows[0].scalar_type());
  at::Tensor result = rows[0].to(type, /*non_blocking=*/false, /*copy=*/true);
  for (size_t r = 1; r < rows.size(); ++r) {
    if (op == ReduceOp::kSum) {
      result.add_(rows[r]);
      continue;
    }
    at::Tensor row = rows[r].to(type);
    at::Tensor better = op == ReduceOp::kMax ? row.gt(result) : row.lt(result);
    result = at::where(better.logical_or_(row.ne(row)), row, result);
  }
  output.copy_(result);
}

}  // namespace muoncore::comm
