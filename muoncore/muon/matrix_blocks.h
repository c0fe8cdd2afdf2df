// Splitting a stored matrix into the logical matrices that a model declared (ParamSpec::blocks),
// and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "muoncore/core/param_spec.h"

namespace muoncore::muon {

// Throws unless the row count is a multiple of the blocks' sum and every block has rows; `name`
// goes into the message.
void check_blocks(const RowBlocks& blocks, int64_t rows, const std::string& name);

// How many logical matrices a parameter of this shape ([rows, cols] or [batch, rows, cols]) holds.
int64_t count_matrices(at::IntArrayRef shape, const RowBlocks& blocks);

// x: [..., rows, cols]. One tensor per block k: [..., groups * rows_k, cols], or with per_group
// [batch * groups, rows_k, cols] (batch 1 for 2-D x). No blocks: x itself. Parts may be views of x;
// they are for reading.
std::vector<at::Tensor> split_blocks(const at::Tensor& x, const RowBlocks& blocks);

// The inverse: writes parts (shaped as split_blocks returns them) into a new tensor of `shape`. No
// blocks: parts[0] itself.
at::Tensor merge_blocks(const std::vector<at::Tensor>& parts, const RowBlocks& blocks,
                        at::IntArrayRef shape);

}  // namespace muoncore::muon
