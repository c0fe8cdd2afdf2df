// Stochastic rounding to bf16.
#pragma once

#include <ATen/core/Tensor.h>

#include "muoncore/core/rng.h"

namespace muoncore::muon {

// x: fp32, any shape and strides. Returns bf16 of x's shape: each value goes to one of its two
// neighbours on the bf16 grid, to the farther one with the probability of its distance from the
// nearer in units of their gap, so that the mean over draws is x; a value on the grid stays.
// Element i (row-major in x's shape, whatever the strides) draws 16 bits at counter i of `rng`. NaN
// and infinities stay what they are. On another device than the CPU the draws are made on the CPU.
at::Tensor round_stochastically(const at::Tensor& x, const CounterRng& rng);

}  // namespace muoncore::muon
