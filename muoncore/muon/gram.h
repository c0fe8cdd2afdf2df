// The Gram form of Newton-Schulz: the iteration runs on the small square matrix X X^T, and X is
// multiplied only at the end and at restarts. Same polynomial, fewer products for matrices that are
// not square. Source: Gram Newton-Schulz (Dao-AILab, 2026); facts in reference/muons.md
// section 2.1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "muoncore/muon/newton_schulz.h"

namespace muoncore::muon {

// As newton_schulz (shapes, dtypes, normalization, guards), iterated in fp32 (fp64 for fp64 input).
// Square matrices take the standard form. `restarts`: the steps, each in [1, steps), before which X
// is multiplied and its Gram matrix taken anew; absent: best_restarts. Throws under medium
// precision and for a restart out of range.
at::Tensor gram_newton_schulz(const at::Tensor& x, const NewtonSchulzOptions& options,
                              const std::optional<std::vector<int64_t>>& restarts = std::nullopt);

// Rounding makes a Gram matrix slightly indefinite, and the iteration amplifies negative
// eigenvalues. The score of a choice of restarts: eigenvalues x^2 - 4e-4 for x in [1e-10, 1], the
// greatest condition of the accumulated factor Q over all steps. Lower is better.
double restart_score(const std::vector<Coefficients>& steps, const std::vector<int64_t>& restarts);

// The single restart with the least score (none for fewer than two steps).
std::vector<int64_t> best_restarts(const std::vector<Coefficients>& steps);

}  // namespace muoncore::muon
