#include "muoncore/muon/pre_transform.h"

#include <cmath>

#include "muoncore/core/check.h"
#include "muoncore/muon/normalize.h"
#include "muoncore/muon/words.h"

namespace muoncore::muon {
namespace {

constexpr Words<PreTransform, 5> kWords{{{"none", PreTransform::kNone},
                                         {"sign", PreTransform::kSign},
                                         {"muoneq_rows", PreTransform::kMuonEqRows},
                                         {"muoneq_columns", PreTransform::kMuonEqColumns},
                                         {"muoneq_both", PreTransform::kMuonEqBoth}}};
constexpr double kEps = 1e-8;

// 1 / sqrt(sum of squares along `dim` + eps)
at::Tensor inverse_root(const at::Tensor& x, int64_t dim) {
  return x.square().sum(dim, /*keepdim=*/true).add_(kEps).rsqrt_();
}

}  // namespace

PreTransform parse_pre_transform(std::string_view text) {
  return parse_word("pre-transform", text, kWords);
}

at::Tensor apply_pre_transform(const at::Tensor& u, PreTransform transform) {
  if (transform == PreTransform::kNone || u.numel() == 0) return u;
  if (transform == PreTransform::kSign) return u.sign();
  const double elements = static_cast<double>(u.size(-2) * u.size(-1));
  const at::Tensor x = normalize_scale_free(u).mul_(std::sqrt(elements));
  switch (transform) {
    case PreTransform::kMuonEqRows:
      return x.mul(inverse_root(x, -1));
    case PreTransform::kMuonEqColumns:
      return x.mul(inverse_root(x, -2));
    case PreTransform::kMuonEqBoth:
      return x.mul(inverse_root(x, -1)).mul_(inverse_root(x, -2));
    case PreTransform::kNone:
    case PreTransform::kSign:
      break;
  }
  fail("pre-transform {} does not exist", static_cast<int>(transform));
}

}  // namespace muoncore::muon
