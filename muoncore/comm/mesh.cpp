#include "muoncore/comm/mesh.h"

#include <string>

namespace muoncore::comm {

Mesh::Mesh(GroupFactory& factory, const MeshSizes& sizes)
    : sizes_(sizes), world_size_(factory.world_size()), rank_(factory.rank()) {
  // All ranks make the axes in this order: a rank is in one group per axis, so nobody waits in a
  // circle.
  for (size_t i = 0; i < kAxes; ++i) {
    auto axis = static_cast<Axis>(i);
    groups_[i] =
        factory.make(std::string(axis_name(axis)), axis_group(sizes_, world_size_, axis, rank_));
  }
}

}  // namespace muoncore::comm
