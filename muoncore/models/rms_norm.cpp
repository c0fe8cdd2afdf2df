#include "muoncore/models/rms_norm.h"

#include <ATen/ops/linalg_vecdot.h>
#include <ATen/ops/mv.h>
#include <torch/csrc/autograd/custom_function.h>

namespace muoncore::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor widened(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    at::Tensor wide = widened(x);
    at::Tensor r = at::linalg_vecdot(wide, wide).unsqueeze(-1);
    r = r.div_(static_cast<double>(x.size(-1))).add_(eps).rsqrt_();
    context->save_for_backward({x, r, weight});
    return (wide * r).to(x.scalar_type()) * weight;
  }

  // With n = x r, u = g * weight:  dweight = sum over rows of g * n,  dx = r (u - n mean(u * n)).
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &r = saved[1], &weight = saved[2];
    int64_t features = x.size(-1);
    at::Tensor g = widened(gradients[0]), w = widened(weight);
    at::Tensor n = widened(x) * r;
    at::Tensor products = (g * n).reshape({-1, features});
    at::Tensor along = at::mv(products, w).view(r.sizes()).div_(static_cast<double>(features));
    at::Tensor dx = (g * w).sub_(n.mul_(along)).mul_(r);
    return {dx.to(x.scalar_type()), products.sum(0).to(weight.scalar_type()), at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return RmsNormFunction::apply(x, weight, eps);
}

}  // namespace muoncore::models
