// Many matrices at once: equal shapes that are too small to fill the machine go through one batched
// product.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "muoncore/muon/newton_schulz.h"

namespace muoncore::muon {

// newton_schulz of every input ([rows, cols] or [batch, rows, cols]), in order; the inputs are not
// written and the results are new tensors. Per slice, as newton_schulz: which matrices share a
// batch does not enter any result.
std::vector<at::Tensor> orthogonalize_all(const std::vector<at::Tensor>& directions,
                                          const NewtonSchulzOptions& options);

}  // namespace muoncore::muon
