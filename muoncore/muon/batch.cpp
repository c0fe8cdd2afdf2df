#include "muoncore/muon/batch.h"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace muoncore::muon {
namespace {

// A bf16 product of this size or less runs up to twice as fast in a batch; fp32 ones gain nothing
// (libtorch.md "Numbers").
constexpr int64_t kSmallSide = 256;

bool pays_in_a_batch(const at::Tensor& x, const NewtonSchulzOptions& o) {
  return o.precision == MatmulPrecision::kMedium && x.dim() == 2 && x.numel() > 0 &&
         std::min(x.size(0), x.size(1)) <= kSmallSide;
}

}  // namespace

std::vector<at::Tensor> orthogonalize_all(const std::vector<at::Tensor>& directions,
                                          const NewtonSchulzOptions& options) {
  const std::vector<Coefficients> steps = resolve_coefficients(options);
  using Shape = std::tuple<int64_t, int64_t, at::ScalarType>;
  std::map<Shape, std::vector<size_t>> groups;
  std::vector<at::Tensor> out(directions.size());
  for (size_t i = 0; i < directions.size(); ++i) {
    const at::Tensor& x = directions[i];
    if (pays_in_a_batch(x, options))
      groups[{x.size(0), x.size(1), x.scalar_type()}].push_back(i);
    else
      out[i] = newton_schulz(x, options, steps);
  }
  for (const auto& [shape, members] : groups) {
    std::vector<at::Tensor> slices;
    for (size_t i : members) slices.push_back(directions[i]);
    at::Tensor batch = newton_schulz(at::stack(slices), options, steps);
    for (size_t k = 0; k < members.size(); ++k)
      out[members[k]] = batch.select(0, static_cast<int64_t>(k));
  }
  return out;
}

}  // namespace muoncore::muon
