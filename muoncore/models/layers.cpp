#include "muoncore/models/layers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>

#include "muoncore/models/rms_norm.h"

namespace muoncore::models {

void describe_param(const std::string& name, ParamRole role, const at::Tensor& param,
                    Specs& specs) {
  ParamSpec spec;
  spec.name = name;
  spec.role = role;
  spec.shape = param.sizes().vec();
  specs.push_back(std::move(spec));
}

Linear::Linear(int64_t in, int64_t out, bool bias, at::TensorOptions options) {
  weight_ = register_parameter("weight", at::empty({out, in}, options));
  if (bias) bias_ = register_parameter("bias", at::empty({out}, options));
}

at::Tensor Linear::forward(const at::Tensor& x) const { return at::linear(x, weight_, bias_); }

void Linear::describe(const std::string& prefix, Specs& specs) const {
  describe_param(prefix + ".weight", ParamRole::kMatrix, weight_, specs);
  if (bias_.defined()) describe_param(prefix + ".bias", ParamRole::kBias, bias_, specs);
}

RmsNorm::RmsNorm(int64_t features, double eps, at::TensorOptions options) : eps_(eps) {
  weight_ = register_parameter("weight", at::empty({features}, options));
}

at::Tensor RmsNorm::forward(const at::Tensor& x) const { return rms_norm(x, weight_, eps_); }

void RmsNorm::describe(const std::string& prefix, Specs& specs) const {
  describe_param(prefix + ".weight", ParamRole::kNorm, weight_, specs);
}

Mlp::Mlp(const ModelConfig& c, at::TensorOptions options) {
  auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<Linear>(in, out, c.mlp_bias, options));
  };
  gate_ = linear("gate_proj", c.hidden_size, c.intermediate_size);
  up_ = linear("up_proj", c.hidden_size, c.intermediate_size);
  down_ = linear("down_proj", c.intermediate_size, c.hidden_size);
}

at::Tensor Mlp::forward(const at::Tensor& x) const {
  return down_->forward(at::silu(gate_->forward(x)) * up_->forward(x));
}

void Mlp::describe(const std::string& prefix, Specs& specs) const {
  gate_->describe(prefix + ".gate_proj", specs);
  up_->describe(prefix + ".up_proj", specs);
  down_->describe(prefix + ".down_proj", specs);
}

}  // namespace muoncore::models
