// From the directions of one step to their orthogonalized updates: what happens to a logical matrix
// before its scale, second moment and learning rate.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "muoncore/muon/newton_schulz.h"
#include "muoncore/muon/post_transform.h"
#include "muoncore/muon/pre_transform.h"

namespace muoncore::muon {

// The stages in their order.
struct OrthogonalizeOptions {
  PreTransform pre = PreTransform::kNone;
  NewtonSchulzOptions newton_schulz;
  PostTransform post = PostTransform::kNone;
};

// Every direction, [rows, cols] or [batch, rows, cols] where each slice is a matrix of its own, in
// order. The directions are not written and the results are new tensors of their shapes and dtypes.
// Per slice: what shares a call does not enter any result. Local. Throws as newton_schulz does.
std::vector<at::Tensor> orthogonalize_directions(const std::vector<at::Tensor>& directions,
                                                 const OrthogonalizeOptions& options);

}  // namespace muoncore::muon
