// Newton-Schulz orthogonalization: from a matrix X with singular values s_i, the matrix with the
// same singular vectors and singular values f(s_i / norm), f the composed polynomial of the
// coefficient set (about 1 for all but tiny s_i). Each step: A = X X^T, B = b A + c A A, X <- a X +
// B X, on the wide orientation. Source: Muon (Keller Jordan, 2024); semantics of NVIDIA
// Emerging-Optimizers 0.3.0 where an option says so.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muoncore/muon/coefficients.h"

namespace muoncore::muon {

// Upstream's words (`muon_fp32_matmul_prec`): highest and high iterate in fp32, medium stores the
// iterates in bf16. The process-wide precision word of torch is neither read nor written.
enum class MatmulPrecision { kHighest, kHigh, kMedium };
MatmulPrecision parse_matmul_precision(std::string_view text);  // throws, naming the words

struct NewtonSchulzOptions {
  std::string coefficient_type = "quintic";       // a name of coefficients.h, or "custom"
  std::vector<Coefficients> custom_coefficients;  // for "custom" only
  IterationMode custom_mode = IterationMode::kCycle;
  int64_t steps = 5;
  MatmulPrecision precision = MatmulPrecision::kHighest;
  // Absent: scale-free normalization (any scale that fp32 can hold gives the same direction, an
  // all-zero matrix gives zero). Present: upstream's x / max(norm, eps).
  std::optional<double> eps;
  std::optional<bool> transpose;  // absent: when rows > cols
  // Upstream's exact iteration: no safety factor, no AOL scaling, no guard (coefficient_guard.h).
  bool upstream_exact = false;
};

// The triples that a run with these options applies. Throws for an unknown set, an impossible
// number of steps, or, unless `upstream_exact`, for a polynomial that diverges, collapses or turns
// directions round.
std::vector<Coefficients> resolve_coefficients(const NewtonSchulzOptions& options);

// The matrix that the iteration starts from: [..., rows, cols], divided by its norm (and by the
// set's safety factor, after AOL scaling, where the set asks for it), fp32 (fp64 for fp64 input). A
// new tensor.
at::Tensor normalize_for_iteration(const at::Tensor& x, const NewtonSchulzOptions& options);

// x: [rows, cols], or [batch, rows, cols] where every slice is a matrix of its own; fp32, bf16,
// fp16 or fp64; any strides. Returns a new tensor of x's shape and dtype; x is not written. fp64
// input iterates in fp64 (unless medium), all else in fp32 or, under medium, in bf16 storage, cast
// only after the normalization in fp32. A NaN or an infinity makes its slice NaN. Throws for
// another number of dimensions and for integer input.
at::Tensor newton_schulz(const at::Tensor& x, const NewtonSchulzOptions& options);

// The same with `steps` = resolve_coefficients(options), for callers with many small matrices: the
// guard costs as much as the iteration of a 32 x 32 matrix.
at::Tensor newton_schulz(const at::Tensor& x, const NewtonSchulzOptions& options,
                         const std::vector<Coefficients>& steps);

}  // namespace muoncore::muon
