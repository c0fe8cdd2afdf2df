// One rank's groups along every axis of the mesh.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "muoncore/comm/factory.h"
#include "muoncore/comm/mesh_ranks.h"

namespace muoncore::comm {

class Mesh {
 public:
  // Collective: all ranks of the world with the same sizes. Every axis gets a group of its own; one
  // of a single rank connects nobody. Throws Error when the sizes do not divide the world.
  Mesh(GroupFactory& factory, const MeshSizes& sizes);

  const MeshSizes& sizes() const { return sizes_; }
  int64_t world_size() const { return world_size_; }
  int64_t rank() const { return rank_; }  // in the world

  Group& group(Axis axis) const { return *groups_[static_cast<size_t>(axis)]; }
  Group& dp() const { return group(Axis::kDp); }
  Group& dp_cp() const { return group(Axis::kDpCp); }
  Group& cp() const { return group(Axis::kCp); }
  Group& tp() const { return group(Axis::kTp); }
  Group& pp() const { return group(Axis::kPp); }
  Group& ep() const { return group(Axis::kEp); }
  Group& expert_tp() const { return group(Axis::kExpertTp); }
  Group& expert_dp() const { return group(Axis::kExpertDp); }
  Group& world() const { return group(Axis::kWorld); }

 private:
  MeshSizes sizes_;
  int64_t world_size_;
  int64_t rank_;
  std::array<std::unique_ptr<Group>, kAxes> groups_;
};

}  // namespace muoncore::comm
