// Orthogonalizing matrices of which every rank of a tensor-parallel group holds an equal share: the
// three ways to reach the result of one process. Collective: all ranks call with the same shapes in
// the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "muoncore/comm/group.h"
#include "muoncore/muon/orthogonalize.h"
#include "muoncore/parallel/tensor_parallel.h"

namespace muoncore::parallel {

// This rank's share of one matrix [rows, cols], or of each matrix of a batch [batch, rows, cols];
// any strides; read only. cut: kRows or kCols; the other side is whole.
struct Share {
  at::Tensor direction;
  Cut cut;
};

// Each returns this rank's share of the orthogonalized matrices, in order, as new tensors of the
// shares' shapes and dtype. All shares of a call have one dtype, fp32 or fp64. Throw as
// muon::orthogonalize_directions and the group's collectives.

// One all_gather; then every rank does everything. The result is that of one process bit for bit:
// the same function sees the same matrices.
std::vector<at::Tensor> orthogonalize_duplicated(const std::vector<Share>& shares,
                                                 const muon::OrthogonalizeOptions& options,
                                                 comm::Group& group);

// One all_to_all brings every matrix (every slice of a batch on its own) whole to one rank, a
// second one brings the shares back. Matrices are dealt by Newton-Schulz cost (deal_by_cost). The
// result is that of one process bit for bit, for the same reason.
std::vector<at::Tensor> orthogonalize_layer_sharded(const std::vector<Share>& shares,
                                                    const muon::OrthogonalizeOptions& options,
                                                    comm::Group& group);

// The iteration on the shares: products over the cut side are summed over the ranks, one all_reduce
// of all Gram matrices per step, and two for the norms. The iteration is `standard` whatever else
// the options ask for; pre- and post-transforms throw.
//
// The Gram matrix must be that of the side that is not cut. Where that is the longer side, `recut`
// (ours) first cuts the matrix along it instead (one all_to_all there, one back); without
// (Upstream) the Gram matrix of the longer side is iterated, which is the same in exact arithmetic.
std::vector<at::Tensor> orthogonalize_distributed(const std::vector<Share>& shares,
                                                  const muon::OrthogonalizeOptions& options,
                                                  comm::Group& group, bool recut = true);

// Which of `ranks` does each of the matrices: the dearest first, each to the rank with the least so
// far; ties by index. The same on every rank.
std::vector<int64_t> deal_by_cost(const std::vector<int64_t>& costs, int64_t ranks);

}  // namespace muoncore::parallel
