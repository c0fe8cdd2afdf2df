// How large AdamW's update would be, for a Muon that is to take steps of the same size
// (`muon_match_adamw_update_rms`). Three answers, from the least honest to the most:
//
// stationary      sqrt((1 - b1) / (1 + b1)), a constant: AdamW's RMS under pure noise after many
//                 steps (muon/scale_mode.h). verl's; too small for the first ~2 / (1 - b1) steps.
// bias_corrected  the same at step t, 1 at the first (muon/scale_mode.h).
// measured        the RMS of the update that AdamW would have made, on a sample of the rows of
//                 every Muon matrix, with gradients as they are: pooled over all matrices.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "muoncore/optim/managed_optimizer.h"

namespace muoncore::optim {

enum class AdamWMatch {
  kNone,  // the factor is a constant: also for stationary
  kBiasCorrected,
  kMeasured,
};
AdamWMatch parse_adamw_match(std::string_view text);  // throws, naming the words

// At most 8 row indices, spread evenly over [0, rows), increasing: the rows that the shadow of a
// matrix watches. They depend on the matrix alone, not on the rank that owns it or on its name.
std::vector<int64_t> sampled_rows(int64_t rows);

// The shadow of one matrix, or batch of them: AdamW's moments of the sampled rows,
// [..., sampled_rows(rows).size(), cols], fp64: the square of a gradient that fp32 holds does not
// overflow.
struct AdamWShadow {
  at::Tensor exp_avg, exp_avg_sq;
};

struct ShadowOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

// Zero moments for a gradient of this shape ([rows, cols] or [batch, rows, cols]), on the device of
// `options`.
AdamWShadow make_shadow(at::IntArrayRef shape, at::TensorOptions options);

// Takes in the gradient of step `step` (1, 2, ...), grad * grad_scale of the whole matrix, and
// returns the sum of squares of AdamW's update / lr over the sampled elements, weight decay left
// out, and their number. Both add up over matrices and ranks: the factor is the rms() of the total,
// so ownership changes it by the order of one sum of doubles alone. The moments are written in
// place.
SquareSum advance_shadow_(const AdamWShadow& shadow_, const at::Tensor& grad, double grad_scale,
                          int64_t step, const ShadowOptions& options);

}  // namespace muoncore::optim
