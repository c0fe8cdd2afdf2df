// The one order of all sums: from rank 0 upwards, in fp32 (fp64 and integers in their own type),
// rounded once at the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace muoncore::comm {

enum class ReduceOp { kSum, kMax, kMin };

// Throws Error unless sums over this dtype are defined: fp64, fp32, bf16, fp16, int64, int32.
void check_reducible(at::ScalarType dtype, const std::string& where);

// output[i] = rows[0][i] op rows[1][i] op ... . Rows: 1-D, contiguous, of one dtype and one length.
// output: of the same length, of the rows' dtype, or fp32 for bf16 and fp16 rows; it may be one of
// the rows. NaN wins in max and min. CPU, in the calling thread, without ATen's thread pool.
void reduce_in_rank_order(const at::Tensor& output, const std::vector<at::Tensor>& rows,
                          ReduceOp op);

}  // namespace muoncore::comm
