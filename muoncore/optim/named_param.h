// A parameter as optimizers and checkpoints see it: what the model says about it, and its tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include "muoncore/core/param_spec.h"

namespace muoncore::optim {

struct NamedParam {
  ParamSpec spec;
  at::Tensor tensor;  // leaf; fp32, fp64 or bf16, contiguous, of spec.shape
};

}  // namespace muoncore::optim
