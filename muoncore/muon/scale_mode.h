// How the shape of a matrix scales its orthogonalized update.
#pragma once

#include <cstdint>
#include <string_view>

namespace muoncore::muon {

// Sources: Emerging-Optimizers `get_muon_scale_factor` (the first three), torch.optim.Muon
// `adjust_lr_fn` (the last two).
enum class ScaleMode {
  kSpectral,       // sqrt(max(out, in)): with an extra factor f the update's RMS is f
  kUnitRmsNorm,    // sqrt(out / in)
  kShapeScaling,   // sqrt(max(1, out / in))
  kOriginal,       // torch's name of shape_scaling
  kMatchRmsAdamw,  // 0.2 sqrt(max(out, in)), Moonlight
};
ScaleMode parse_scale_mode(std::string_view text);  // throws, naming the words

double scale_factor(ScaleMode mode, int64_t out, int64_t in);

// sqrt((1 - beta1) / (1 + beta1)): the stationary RMS of AdamW's update under pure noise, which
// with `spectral` makes Muon's update RMS equal to AdamW's. Source: verl
// `adamw_rms_match_scale_factor`. Throws unless 0 <= beta1 < 1.
double adamw_rms_match_scale_factor(double beta1);

// The same at step t = 1, 2, ...: AdamW's bias-corrected momentum of t independent gradients has
// RMS sqrt((1 - b) / (1 + b) * (1 + b^t) / (1 - b^t)), 1 at the first step.
double adamw_rms_match_scale_factor_at(double beta1, int64_t step);

}  // namespace muoncore::muon
