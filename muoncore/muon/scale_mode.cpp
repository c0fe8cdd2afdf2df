#include "muoncore/muon/scale_mode.h"

#include <algorithm>
#include <cmath>

#include "muoncore/core/check.h"
#include "muoncore/muon/words.h"

namespace muoncore::muon {
namespace {

constexpr Words<ScaleMode, 5> kModes{{{"spectral", ScaleMode::kSpectral},
                                      {"unit_rms_norm", ScaleMode::kUnitRmsNorm},
                                      {"shape_scaling", ScaleMode::kShapeScaling},
                                      {"original", ScaleMode::kOriginal},
                                      {"match_rms_adamw", ScaleMode::kMatchRmsAdamw}}};

}  // namespace

ScaleMode parse_scale_mode(std::string_view text) { return parse_word("scale mode", text, kModes); }

double scale_factor(ScaleMode mode, int64_t out, int64_t in) {
  const double rows = static_cast<double>(out), cols = static_cast<double>(in);
  switch (mode) {
    case ScaleMode::kSpectral:
      return std::sqrt(std::max(rows, cols));
    case ScaleMode::kUnitRmsNorm:
      return std::sqrt(rows / cols);
    case ScaleMode::kShapeScaling:
    case ScaleMode::kOriginal:
      return std::sqrt(std::max(1.0, rows / cols));
    case ScaleMode::kMatchRmsAdamw:
      return 0.2 * std::sqrt(std::max(rows, cols));
  }
  fail("scale mode {} does not exist", static_cast<int>(mode));
}

double adamw_rms_match_scale_factor(double beta1) {
  check(beta1 >= 0 && beta1 < 1, "beta1 must be in [0, 1), got {}", beta1);
  return std::sqrt((1 - beta1) / (1 + beta1));
}

double adamw_rms_match_scale_factor_at(double beta1, int64_t step) {
  check(step >= 1, "the step of a bias-corrected RMS match counts from 1, got {}", step);
  const double power = std::pow(beta1, static_cast<double>(step));
  return adamw_rms_match_scale_factor(beta1) * std::sqrt((1 + power) / (1 - power));
}

}  // namespace muoncore::muon
