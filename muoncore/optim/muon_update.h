// What Muon does to one parameter before and after its orthogonalization. For muon*.cpp alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "muoncore/optim/muon.h"
#include "muoncore/optim/muon_rule.h"

namespace muoncore::optim {

// One parameter between its momentum and its update.
struct PendingUpdate {
  at::Tensor param;
  // in the dtype of the computation; the parameter itself where that is its own
  at::Tensor weights;
  std::vector<MuonPart> parts;         // its logical matrices
  std::vector<at::Tensor> grad_norms;  // likewise; empty unless the second moment reads them
  const ParamSpec* spec = nullptr;
  std::vector<int64_t> shape;  // the parameter as Muon sees it (matrix_shape)
  MuonParamState* state = nullptr;
  double factor = 1.0;  // extra scale factor of this step
};

// fp64 for fp64 parameters, else fp32.
at::ScalarType muon_compute_dtype(const at::Tensor& param);

// The parameter's shape as [rows, cols] or [batch, rows, cols].
std::vector<int64_t> muon_shape(const at::Tensor& param, const ParamSpec& spec);

// Throws, before anything is touched, for a parameter that cannot be rounded stochastically.
void check_rounding(const at::Tensor& param, const ParamSpec& spec);

// The measured match's part of one parameter (rms_match.h): its shadow takes in the gradient of the
// step that comes.
SquareSum observe_parameter(const at::Tensor& param, const ParamSpec& spec, MuonParamState& state,
                            const MuonRule& rule, double grad_scale);

// Counts the step, decays the weights, updates the momentum and says what is to be orthogonalized.
// `observed`: the total over all parameters and ranks, under the measured match.
PendingUpdate prepare_update(const at::Tensor& param, const ParamSpec& spec, MuonParamState& state,
                             const MuonRule& rule, const StepArgs& args,
                             const std::optional<SquareSum>& observed);

// From the orthogonalized parts to the new weights:
//   weights -= lr * factor * scales[part] * second_moment(part)
// or Hyperball's form of it (muon/hyperball.h), or that of align_update_rms. Adds to `stats`;
// `measure`: also the squares.
void apply_update(const PendingUpdate& pending, std::vector<at::Tensor> updates,
                  const std::vector<double>& scales, const MuonRule& rule, bool measure,
                  GroupStats& stats);

}  // namespace muoncore::optim
