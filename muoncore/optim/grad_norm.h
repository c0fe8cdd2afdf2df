// The global gradient norm and the clip coefficient. Gradients are read, never written.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "muoncore/optim/exact_sum.h"

namespace muoncore::optim {

struct GradNorm {
  double norm = 0.0;   // not finite when `finite` is false
  bool finite = true;  // no element is NaN or infinite
};

// p-norm over all elements of all tensors together: norm_type 1, 2, any other p > 0, or infinity.
// For 2 the sum is exact. Else sums in fp64 over chunks of fixed size in a fixed order, so the
// bytes do not depend on the number of threads, and a norm of huge finite values is finite. Any
// strides; fp32, fp64, bf16, fp16. No tensors: 0. Throws on sparse tensors and other dtypes.
GradNorm grad_norm(const std::vector<at::Tensor>& grads, double norm_type = 2.0);

// Adds the squares of all elements of one gradient; strides, dtypes and errors as above.
void add_squares(ExactSum& sum, const at::Tensor& grad);

// min(1, clip_grad / (norm + 1e-6)); clip_grad 0 means no clipping: 1. Source: Megatron-Core's
// clip_grads (torch.nn.utils.clip_grad_norm_ uses the same eps).
double clip_coefficient(double norm, double clip_grad);

}  // namespace muoncore::optim
