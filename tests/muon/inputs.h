// Matrices for tests, drawn from the counter-based generator: the same on every machine.
#pragma once

#include <ATen/ops/empty.h>

#include "muoncore/core/rng.h"

namespace muoncore::testing {

inline at::Tensor gaussian(at::IntArrayRef shape, uint64_t seed = 42,
                           at::ScalarType dtype = at::kFloat) {
  at::Tensor out = at::empty(shape, at::kDouble);
  const CounterRng rng({seed, hash_name("gaussian")});
  double* values = out.mutable_data_ptr<double>();
  for (int64_t i = 0; i < out.numel(); ++i) values[i] = rng.normal(static_cast<uint64_t>(i));
  return out.to(dtype);
}

// ||a - b|| / ||b|| in fp64
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  return ((x - y).norm() / y.norm().clamp_min(1e-300)).item<double>();
}

}  // namespace muoncore::testing
