// The small parts of a transformer, with parameters named as in Hugging Face's modules.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "muoncore/core/param_spec.h"
#include "muoncore/models/config.h"

namespace muoncore::models {

// What a part says about its parameters: appended in the order in which they are registered.
using Specs = std::vector<ParamSpec>;
void describe_param(const std::string& name, ParamRole role, const at::Tensor& param, Specs& specs);

// y = x W^T (+ b): weight [out, in], bias [out].
class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in, int64_t out, bool bias, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x) const;  // [..., in] -> [..., out]
  void describe(const std::string& prefix, Specs& specs) const;

 private:
  at::Tensor weight_, bias_;
};

// rms_norm.h, over the last dimension.
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(int64_t features, double eps, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x) const;
  void describe(const std::string& prefix, Specs& specs) const;

 private:
  at::Tensor weight_;
  double eps_;
};

// down(silu(gate(x)) * up(x)).
class Mlp : public torch::nn::Module {
 public:
  Mlp(const ModelConfig& config, at::TensorOptions options);
  at::Tensor forward(const at::Tensor& x) const;
  void describe(const std::string& prefix, Specs& specs) const;

 private:
  std::shared_ptr<Linear> gate_, up_, down_;
};

}  // namespace muoncore::models
