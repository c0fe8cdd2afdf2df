#include "muoncore/muon/orthogonalize.h"

#include "muoncore/muon/batch.h"

namespace muoncore::muon {

std::vector<at::Tensor> orthogonalize_directions(const std::vector<at::Tensor>& directions,
                                                 const OrthogonalizeOptions& options) {
  return orthogonalize_all(directions, options.newton_schulz);
}

}  // namespace muoncore::muon
