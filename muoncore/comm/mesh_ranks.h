// Which ranks stand together, as plain data: no process group is needed to compute or print it.
// The order is Megatron-Core's default `tp-cp-ep-dp-pp` (parallel_state.RankGenerator): tensor
// parallel ranks are neighbours, pipeline stages are farthest apart. Dense layers count
// rank = tp + TP * (cp + CP * (dp + DP * pp)); experts count the same ranks as
// rank = etp + ETP * (ep + EP * (edp + EDP * pp)), with EDP = world / (ETP * EP * PP).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muoncore::comm {

// verl's keys: tensor_model_parallel_size, context_parallel_size, expert_model_parallel_size,
// expert_tensor_parallel_size, pipeline_model_parallel_size.
struct MeshSizes {
  int64_t tp = 1;
  int64_t cp = 1;
  int64_t ep = 1;
  int64_t etp = 1;
  int64_t pp = 1;
};

enum class Axis {
  kDp,           // replicas of a dense parameter that see other data
  kDpCp,         // the same, with the ranks that share a sequence: over these gradients are reduced
  kCp,           // ranks that share a sequence
  kTp,           // ranks that share a dense parameter
  kPp,           // the stages, first to last
  kModel,        // tp x pp: one whole copy of the dense parameters
  kEp,           // ranks that share the experts out
  kExpertTp,     // ranks that share one expert's parameter
  kExpertDp,     // replicas of an expert's parameter: over these its gradients are reduced
  kExpertModel,  // etp x ep x pp: one whole copy of the experts
  kWorld
};
constexpr size_t kAxes = 11;
std::string_view axis_name(Axis axis);  // "dp", "dp_cp", "cp", "tp", "pp", "model", "ep", ...

// The size of a group of this kind. Throws Error when the world does not divide: names the sizes.
int64_t axis_size(const MeshSizes& sizes, int64_t world_size, Axis axis);

// All groups of one kind, ordered by their lowest rank; ranks ascend within each, and each rank of
// the world stands in exactly one. Throws as axis_size.
std::vector<std::vector<int64_t>> axis_groups(const MeshSizes& sizes, int64_t world_size,
                                              Axis axis);

// The one of them with `rank`.
std::vector<int64_t> axis_group(const MeshSizes& sizes, int64_t world_size, Axis axis,
                                int64_t rank);

}  // namespace muoncore::comm
