// Shared by the tests of optim/: keyed random tensors, byte equality, and a naive fp64 AdamW.
#pragma once

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "muoncore/core/rng.h"
#include "muoncore/optim/named_param.h"

namespace muoncore::optim::testing {

inline at::Tensor random_tensor(at::IntArrayRef shape, const std::string& key, double scale = 1.0,
                                at::ScalarType dtype = at::kFloat) {
  at::Tensor out = at::empty(shape, at::kDouble);
  const CounterRng rng({hash_name(key)});
  for (int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data_ptr<double>()[i] = scale * rng.normal(static_cast<uint64_t>(i));
  return out.to(dtype);
}

inline at::Tensor leaf(at::IntArrayRef shape, const std::string& key, double scale = 1.0,
                       at::ScalarType dtype = at::kFloat) {
  return random_tensor(shape, key, scale, dtype).set_requires_grad(true);
}

inline NamedParam named(const std::string& name, ParamRole role, std::vector<int64_t> shape,
                        at::ScalarType dtype = at::kFloat) {
  ParamSpec spec{.name = name, .role = role, .shape = shape, .blocks = {}};
  return {spec, leaf(shape, fmt::format("param/{}", name), 0.5, dtype)};
}

// Gives every parameter the gradient of step t.
inline void set_gradients(const std::vector<NamedParam>& params, int t, double scale = 0.3) {
  for (const auto& param : params)
    param.tensor.mutable_grad() =
        random_tensor(param.tensor.sizes(), fmt::format("{}/grad{}", param.spec.name, t), scale,
                      param.tensor.scalar_type());
}

inline bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.numel() == 0 || std::memcmp(a.contiguous().const_data_ptr(),
                                        b.contiguous().const_data_ptr(), a.nbytes()) == 0);
}

inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).abs().max().item<double>();
}

// Element by element in fp64, from the formulas in the paper.
struct ReferenceAdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  at::Tensor p, m, v;  // fp64
  int64_t t = 0;
  double update_rms = 0.0;

  explicit ReferenceAdamW(const at::Tensor& param)
      : p(param.detach().to(at::kDouble).clone()), m(at::zeros_like(p)), v(at::zeros_like(p)) {}

  void step(const at::Tensor& grad) {
    const at::Tensor g = grad.to(at::kDouble);
    ++t;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const at::Tensor update =
        (m / (1 - std::pow(beta1, t))) / ((v / (1 - std::pow(beta2, t))).sqrt() + eps);
    update_rms = std::sqrt((update * update).mean().item<double>());
    p = p * (1 - lr * weight_decay) - lr * update;
  }
};

}  // namespace muoncore::optim::testing
