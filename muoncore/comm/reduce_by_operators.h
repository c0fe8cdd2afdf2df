// reduce_in_rank_order (rank_order.h) for tensors of any device, by ATen's operators on the current
// stream: the same order, the same types, the same bits (a NaN may be another NaN).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "muoncore/comm/rank_order.h"

namespace muoncore::comm {

// Arguments as there, all on one device. Needs as much memory again as one row in the type of the
// sum.
void reduce_by_operators(const at::Tensor& output, const std::vector<at::Tensor>& rows,
                         ReduceOp op);

}  // namespace muoncore::comm
