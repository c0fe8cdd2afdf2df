// Muon on the sphere: every matrix keeps the norm R that it had at the start.
//
//   O <- O R / ||O||;  W <- W - lr O;  W <- W R / ||W||
//
// so that lr is the relative size of a step; shape scale and extra factor drop out. Sources:
// Hyperball, arXiv 2606.16899; Emerging-Optimizers' MuonHyperball (norms up to 1e-15 count as zero
// and map to zero). Per matrix: every slice of a batch has its own R.
#pragma once

#include <ATen/core/Tensor.h>

namespace muoncore::muon {

constexpr double kHyperballEps = 1e-15;

// x: [..., rows, cols]. What x is multiplied with to have the norm `length` ([..., 1, 1], or one
// for all), in x's dtype; 0 where its own norm is at most eps.
at::Tensor factor_to_norm(const at::Tensor& x, const at::Tensor& length, double eps);
at::Tensor factor_to_norm(const at::Tensor& x, double length, double eps);

}  // namespace muoncore::muon
