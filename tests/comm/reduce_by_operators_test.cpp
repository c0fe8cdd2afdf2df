// What sums on a device: held against the sums on the CPU, bit for bit.
#include "muoncore/comm/reduce_by_operators.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

// Sizes from 1e-4 to 1e4, so that the order of a sum shows in its bits.
torch::Tensor row(int64_t r, int64_t count, torch::ScalarType dtype) {
  torch::Tensor values = torch::arange(count, torch::kDouble) * 1.7 + 0.31 * static_cast<double>(r);
  values = torch::sin(values) * torch::pow(10.0, torch::remainder(values * 37.0, 8.0) - 4.0);
  return values.to(dtype);
}

std::vector<torch::Tensor> rows_of(int64_t ranks, int64_t count, torch::ScalarType dtype) {
  std::vector<torch::Tensor> rows;
  for (int64_t r = 0; r < ranks; ++r) rows.push_back(row(r, count, dtype));
  return rows;
}

// Which NaN it is does not count.
torch::Tensor one_nan(const torch::Tensor& x) {
  return x.is_floating_point() ? x.masked_fill(x.isnan(), 12345.0) : x;
}

bool same_bytes(const torch::Tensor& x, const torch::Tensor& y) {
  torch::Tensor a = one_nan(x);
  torch::Tensor b = one_nan(y);
  return a.nbytes() == b.nbytes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

void expect_same(const std::vector<torch::Tensor>& rows, torch::ScalarType out, ReduceOp op) {
  torch::Tensor expected = torch::full({rows[0].numel()}, 3, out);
  torch::Tensor got = torch::full({rows[0].numel()}, 5, out);
  reduce_in_rank_order(expected, rows, op);
  reduce_by_operators(got, rows, op);
  EXPECT_TRUE(same_bytes(got, expected))
      << c10::toString(rows[0].scalar_type()) << " to " << c10::toString(out) << ", op "
      << static_cast<int>(op) << ", " << rows.size() << " x " << rows[0].numel();
}

TEST(ReduceByOperators, SameBitsAsOnTheCpu) {
  for (torch::ScalarType dtype :
       {torch::kDouble, torch::kFloat, torch::kBFloat16, torch::kHalf, torch::kLong, torch::kInt})
    for (int64_t ranks : {1, 2, 3, 8})
      for (int64_t count : {0, 1, 7, 5000})
        for (ReduceOp op : kOps) expect_same(rows_of(ranks, count, dtype), dtype, op);
}

TEST(ReduceByOperators, Bf16AndFp16IntoFp32) {
  for (torch::ScalarType dtype : {torch::kBFloat16, torch::kHalf})
    for (ReduceOp op : kOps) expect_same(rows_of(4, 1000, dtype), torch::kFloat, op);
}

TEST(ReduceByOperators, AnotherOrderHasOtherBits) {
  std::vector<torch::Tensor> rows = rows_of(8, 5000, torch::kFloat);
  torch::Tensor expected = torch::empty({5000});
  torch::Tensor got = torch::empty({5000});
  reduce_in_rank_order(expected, rows, ReduceOp::kSum);
  std::swap(rows[0], rows[7]);
  reduce_by_operators(got, rows, ReduceOp::kSum);
  EXPECT_FALSE(same_bytes(got, expected));
}

TEST(ReduceByOperators, OutputMayBeARow) {
  for (size_t place : {0, 1, 2})
    for (ReduceOp op : kOps) {
      std::vector<torch::Tensor> rows = rows_of(3, 100, torch::kBFloat16);
      torch::Tensor expected = torch::empty({100}, torch::kBFloat16);
      reduce_in_rank_order(expected, rows, op);
      reduce_by_operators(rows[place], rows, op);
      EXPECT_TRUE(same_bytes(rows[place], expected)) << place;
    }
}

TEST(ReduceByOperators, NanInfinityZerosAndDenormals) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> a = {kNan, 1.0f, kInf, -0.0f, 0.0f, 1e-40f, 3e38f, kInf};
  const std::vector<float> b = {1.0f, kNan, 1.0f, 0.0f, -0.0f, 2e-40f, 3e38f, -kInf};
  for (torch::ScalarType dtype : {torch::kFloat, torch::kBFloat16})
    for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin})
      expect_same({torch::tensor(a).to(dtype), torch::tensor(b).to(dtype)}, dtype, op);
  torch::Tensor sum = torch::empty({8});
  reduce_by_operators(sum, {torch::tensor(a), torch::tensor(b)}, ReduceOp::kSum);
  const float* data = sum.const_data_ptr<float>();
  EXPECT_TRUE(std::isnan(data[0]) && std::isnan(data[1]) && std::isnan(data[7]));
  EXPECT_EQ(data[2], kInf);
  EXPECT_EQ(data[3], 0.0f);
  EXPECT_EQ(data[5], 1e-40f + 2e-40f);
  EXPECT_EQ(data[6], kInf);
}

TEST(ReduceByOperators, RefusesWhatHasNoSum) {
  torch::Tensor bytes = torch::zeros({3}, torch::kByte);
  EXPECT_THROW(reduce_by_operators(bytes, {bytes, bytes}, ReduceOp::kSum), Error);
}

}  // namespace
}  // namespace muoncore::comm
