#include "muoncore/muon/hyperball.h"

#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include "muoncore/muon/second_moment.h"

namespace muoncore::muon {

at::Tensor factor_to_norm(const at::Tensor& x, const at::Tensor& length, double eps) {
  const at::Tensor norm = matrix_norm(x);
  return at::where(norm.gt(eps), length / norm, 0.0).to(x.scalar_type());
}

at::Tensor factor_to_norm(const at::Tensor& x, double length, double eps) {
  return factor_to_norm(x, at::full({}, length, x.options().dtype(at::kDouble)), eps);
}

}  // namespace muoncore::muon
