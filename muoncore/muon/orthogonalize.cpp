#include "muoncore/muon/orthogonalize.h"

#include "muoncore/muon/batch.h"

namespace muoncore::muon {

std::vector<at::Tensor> orthogonalize_directions(const std::vector<at::Tensor>& directions,
                                                 const OrthogonalizeOptions& options) {
  if (options.pre == PreTransform::kNone && options.post == PostTransform::kNone)
    return orthogonalize_all(directions, options.newton_schulz);
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& direction : directions)
    inputs.push_back(apply_pre_transform(direction, options.pre));
  std::vector<at::Tensor> updates = orthogonalize_all(inputs, options.newton_schulz);
  for (const at::Tensor& update : updates) apply_post_transform_(update, options.post);
  return updates;
}

}  // namespace muoncore::muon
