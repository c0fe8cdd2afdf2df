#include "muoncore/comm/rank_order.h"

#include <array>
#include <type_traits>

#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

// Elements that are summed at a time: the accumulators stay in the first cache, and an output that
// is one of the rows is written only after all rows were read there.
constexpr int64_t kBlock = 2048;

template <ReduceOp op, typename A>
A combine(A a, A b) {
  if constexpr (op == ReduceOp::kSum)
    return a + b;
  else if constexpr (op == ReduceOp::kMax)
    return (b > a || b != b) ? b : a;
  else
    return (b < a || b != b) ? b : a;
}

template <ReduceOp op, typename In, typename A, typename Out>
void reduce_typed(Out* output, const std::vector<const In*>& rows, int64_t count) {
  std::array<A, kBlock> sums;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    int64_t n = std::min(kBlock, count - begin);
    const In* first = rows[0] + begin;
    for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<A>(first[i]);
    for (size_t r = 1; r < rows.size(); ++r) {
      const In* row = rows[r] + begin;
      for (int64_t i = 0; i < n; ++i) sums[i] = combine<op>(sums[i], static_cast<A>(row[i]));
    }
    for (int64_t i = 0; i < n; ++i) output[begin + i] = static_cast<Out>(sums[i]);
  }
}

template <typename In, typename A, typename Out>
void reduce_op(const at::Tensor& output, const std::vector<at::Tensor>& rows, ReduceOp op) {
  std::vector<const In*> data;
  for (const at::Tensor& row : rows) data.push_back(row.const_data_ptr<In>());
  Out* out = output.mutable_data_ptr<Out>();
  switch (op) {
    case ReduceOp::kSum:
      return reduce_typed<ReduceOp::kSum, In, A>(out, data, output.numel());
    case ReduceOp::kMax:
      return reduce_typed<ReduceOp::kMax, In, A>(out, data, output.numel());
    case ReduceOp::kMin:
      return reduce_typed<ReduceOp::kMin, In, A>(out, data, output.numel());
  }
}

template <typename In>
void reduce_half(const at::Tensor& output, const std::vector<at::Tensor>& rows, ReduceOp op) {
  if (output.scalar_type() == at::kFloat)
    reduce_op<In, float, float>(output, rows, op);
  else
    reduce_op<In, float, In>(output, rows, op);
}

}  // namespace

void check_reducible(at::ScalarType dtype, const std::string& where) {
  check(dtype == at::kDouble || dtype == at::kFloat || dtype == at::kBFloat16 ||
            dtype == at::kHalf || dtype == at::kLong || dtype == at::kInt,
        "{}: no reduction of {}; it takes Double, Float, BFloat16, Half, Long and Int", where,
        c10::toString(dtype));
}

void reduce_in_rank_order(const at::Tensor& output, const std::vector<at::Tensor>& rows,
                          ReduceOp op) {
  switch (rows.at(0).scalar_type()) {
    case at::kDouble:
      return reduce_op<double, double, double>(output, rows, op);
    case at::kFloat:
      return reduce_op<float, float, float>(output, rows, op);
    case at::kLong:
      return reduce_op<int64_t, int64_t, int64_t>(output, rows, op);
    case at::kInt:
      return reduce_op<int32_t, int32_t, int32_t>(output, rows, op);
    case at::kBFloat16:
      return reduce_half<at::BFloat16>(output, rows, op);
    case at::kHalf:
      return reduce_half<at::Half>(output, rows, op);
    default:
      check_reducible(rows.at(0).scalar_type(), "reduction");
  }
}

}  // namespace muoncore::comm
