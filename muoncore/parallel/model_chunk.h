// What the distributed optimizer is told of a model on one rank: bags of parameters, and the groups
// of ranks around them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muoncore/comm/group.h"
#include "muoncore/optim/named_param.h"
#include "muoncore/parallel/param_layout.h"

namespace muoncore::parallel {

// One parameter of a chunk. `spec.shape` is the logical shape; `tensor` is what lies here: under
// tensor parallelism the share of the dimension spec.partition_dim, else all of it.
struct ChunkParam {
  ParamSpec spec;
  at::Tensor tensor;              // contiguous leaf; fp32, fp64 or bf16
  bool expert = false;            // replicated over the expert data-parallel ranks only
  bool shared_embedding = false;  // tied to a parameter of another pipeline stage
};

// A part of the model that runs as a whole: all of it, or one of this stage's virtual stages.
// Parameters stand in the order in which the forward pass reads them.
struct ModelChunk {
  std::vector<ChunkParam> params;
};

// The groups that this rank is in. They must outlive what is made with them. Null: of one rank.
struct ParallelGroups {
  comm::Group* world = nullptr;      // all ranks of this training
  comm::Group* dp = nullptr;         // ranks that hold the same dense parameters
  comm::Group* expert_dp = nullptr;  // ranks that hold the same expert parameters
  comm::Group* tp = nullptr;         // ranks that hold the shares of one dense matrix
  comm::Group* expert_tp = nullptr;  // likewise of an expert's
  comm::Group* pp = nullptr;         // the stages of one pipeline
  comm::Group* embedding = nullptr;  // the stages that hold a shared embedding, and only those
};

inline int64_t size_of(const comm::Group* group) { return group == nullptr ? 1 : group->size(); }
inline int64_t rank_in(const comm::Group* group) { return group == nullptr ? 0 : group->rank(); }

// Names and defaults are Megatron's and verl's, but for param_layout (ours) and
// average_gradients (Megatron decides it by its loss).
struct DistributedDataParallelConfig {
  bool grad_reduce_in_fp32 = true;  // false: gradients in the parameters' dtype, summed in fp32
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  // ZeRO-1 for what AdamW updates. With Muon the layer-wise optimizer comes with it: a matrix that
  // is cut cannot be orthogonalized.
  bool use_distributed_optimizer = true;
  // Muon's matrices whole on one owner each, and ZeRO-1 for the rest.
  bool use_layer_wise_distributed_optimizer = false;
  LayoutKind param_layout = LayoutKind::kBalanced;
  // Elements. None: default_bucket_size(dp) where something overlaps, else one bucket.
  std::optional<int64_t> bucket_size = std::nullopt;
  bool pad_buckets_for_high_nccl_busbw = false;
  // true: the mean over the data-parallel ranks of what each computed; false: the sum, for losses
  // that are divided by the numbers of the whole batch already.
  bool average_gradients = true;
};

}  // namespace muoncore::parallel
