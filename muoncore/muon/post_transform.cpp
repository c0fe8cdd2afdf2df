#include "muoncore/muon/post_transform.h"

#include <algorithm>
#include <cmath>

#include "muoncore/muon/hyperball.h"
#include "muoncore/muon/words.h"

namespace muoncore::muon {
namespace {

constexpr Words<PostTransform, 6> kWords{{{"none", PostTransform::kNone},
                                          {"muon_plus_rows", PostTransform::kRows},
                                          {"muon_plus_columns", PostTransform::kColumns},
                                          {"muon_plus_columns_rows", PostTransform::kColumnsRows},
                                          {"muon_plus_rows_columns", PostTransform::kRowsColumns},
                                          {"frobenius", PostTransform::kFrobenius}}};
constexpr double kRowEps = 1e-7;
constexpr double kFrobeniusEps = 1e-7;

// Every vector along `dim` to length 1.
void normalize_(const at::Tensor& x_, int64_t dim) {
  x_.mul_(x_.square().sum(dim, /*keepdim=*/true).add_(kRowEps).rsqrt_());
}

}  // namespace

PostTransform parse_post_transform(std::string_view text) {
  return parse_word("post-transform", text, kWords);
}

void apply_post_transform_(const at::Tensor& update_, PostTransform transform) {
  if (update_.numel() == 0) return;
  switch (transform) {
    case PostTransform::kNone:
      return;
    case PostTransform::kRows:
      return normalize_(update_, -1);
    case PostTransform::kColumns:
      return normalize_(update_, -2);
    case PostTransform::kColumnsRows:
      normalize_(update_, -2);
      return normalize_(update_, -1);
    case PostTransform::kRowsColumns:
      normalize_(update_, -1);
      return normalize_(update_, -2);
    case PostTransform::kFrobenius:
      const int64_t smaller = std::min(update_.size(-2), update_.size(-1));
      update_.mul_(factor_to_norm(update_, std::sqrt(static_cast<double>(smaller)), kFrobeniusEps));
      return;
  }
}

}  // namespace muoncore::muon
