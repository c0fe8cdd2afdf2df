#include "muoncore/comm/mesh_ranks.h"

#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

// One dimension of the grid of ranks, from the one that changes fastest.
struct Dimension {
  int64_t size = 1;
  bool in_group = false;  // its ranks stand together
};

void check_size(const char* name, int64_t size) {
  check(size >= 1, "mesh: {} is {}; it must be at least 1", name, size);
}

void check_divides(const MeshSizes& sizes, int64_t world_size) {
  check_size("the world", world_size);
  check_size("tp", sizes.tp);
  check_size("cp", sizes.cp);
  check_size("ep", sizes.ep);
  check_size("etp", sizes.etp);
  check_size("pp", sizes.pp);
  const int64_t dense = sizes.tp * sizes.cp * sizes.pp;
  check(world_size % dense == 0,
        "mesh: {} ranks cannot be divided by tp * cp * pp = {} * {} * {} = {}", world_size,
        sizes.tp, sizes.cp, sizes.pp, dense);
  const int64_t expert = sizes.etp * sizes.ep * sizes.pp;
  check(world_size % expert == 0,
        "mesh: {} ranks cannot be divided by etp * ep * pp = {} * {} * {} = {}", world_size,
        sizes.etp, sizes.ep, sizes.pp, expert);
}

std::vector<Dimension> grid(const MeshSizes& sizes, int64_t world_size, Axis axis) {
  check_divides(sizes, world_size);
  auto dense = [&](bool tp, bool cp, bool dp, bool pp) -> std::vector<Dimension> {
    int64_t dp_size = world_size / (sizes.tp * sizes.cp * sizes.pp);
    return {{sizes.tp, tp}, {sizes.cp, cp}, {dp_size, dp}, {sizes.pp, pp}};
  };
  auto expert = [&](bool etp, bool ep, bool edp, bool pp) -> std::vector<Dimension> {
    int64_t edp_size = world_size / (sizes.etp * sizes.ep * sizes.pp);
    return {{sizes.etp, etp}, {sizes.ep, ep}, {edp_size, edp}, {sizes.pp, pp}};
  };
  switch (axis) {
    case Axis::kDp:
      return dense(false, false, true, false);
    case Axis::kDpCp:
      return dense(false, true, true, false);
    case Axis::kCp:
      return dense(false, true, false, false);
    case Axis::kTp:
      return dense(true, false, false, false);
    case Axis::kPp:
      return dense(false, false, false, true);
    case Axis::kModel:
      return dense(true, false, false, true);
    case Axis::kEp:
      return expert(false, true, false, false);
    case Axis::kExpertTp:
      return expert(true, false, false, false);
    case Axis::kExpertDp:
      return expert(false, false, true, false);
    case Axis::kExpertModel:
      return expert(true, true, false, true);
    case Axis::kWorld:
      return {{world_size, true}};
  }
  fail("mesh: no axis {}", static_cast<int>(axis));
}

}  // namespace

std::string_view axis_name(Axis axis) {
  constexpr std::string_view kNames[kAxes] = {"dp",        "dp_cp",        "cp",   "tp",
                                              "pp",        "model",        "ep",   "expert_tp",
                                              "expert_dp", "expert_model", "world"};
  return kNames[static_cast<size_t>(axis)];
}

int64_t axis_size(const MeshSizes& sizes, int64_t world_size, Axis axis) {
  int64_t size = 1;
  for (const Dimension& dimension : grid(sizes, world_size, axis))
    if (dimension.in_group) size *= dimension.size;
  return size;
}

std::vector<std::vector<int64_t>> axis_groups(const MeshSizes& sizes, int64_t world_size,
                                              Axis axis) {
  const std::vector<Dimension> dimensions = grid(sizes, world_size, axis);
  // A rank's group: its place in the dimensions that are not in the group, read as one number.
  // Taken in ascending order of ranks, so that groups and members come out in order.
  std::vector<int64_t> place_of_group(world_size, -1);
  std::vector<std::vector<int64_t>> groups;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    int64_t rest = rank, group = 0, stride = 1;
    for (const Dimension& dimension : dimensions) {
      if (!dimension.in_group) {
        group += rest % dimension.size * stride;
        stride *= dimension.size;
      }
      rest /= dimension.size;
    }
    if (place_of_group[group] < 0) {
      place_of_group[group] = static_cast<int64_t>(groups.size());
      groups.emplace_back();
    }
    groups[place_of_group[group]].push_back(rank);
  }
  return groups;
}

std::vector<int64_t> axis_group(const MeshSizes& sizes, int64_t world_size, Axis axis,
                                int64_t rank) {
  for (std::vector<int64_t>& group : axis_groups(sizes, world_size, axis))
    for (int64_t member : group)
      if (member == rank) return std::move(group);
  fail("mesh: there is no rank {} in a world of {}", rank, world_size);
}

}  // namespace muoncore::comm
