// The call that makes a model's data-parallel buffers and its optimizer, in the right order: tag
// parameters, compute layouts, compare the plans of all ranks, build buffers, then the chain.
// Name and steps after verl's wrap_model_chunks_with_layerwise_aware_ddp (megatron_utils.py).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "muoncore/comm/mesh.h"
#include "muoncore/optim/build.h"
#include "muoncore/optim/chained.h"
#include "muoncore/optim/optimizer_config.h"
#include "muoncore/parallel/buffer_plan.h"
#include "muoncore/parallel/distributed_data_parallel.h"
#include "muoncore/parallel/model_chunk.h"

namespace muoncore::parallel {

// A step of training:
//   optimizer->zero_grad();
//   { const NoSync no_sync(*schedule); ... all backward passes but the last ... }
//   ... the last backward pass: with overlap_grad_reduce, buckets leave while it runs ...
//   optimizer->step();   // finishes the reduction, clips by one norm, updates, gathers
//   wait_params();       // only under overlap_param_gather: before weights are read or saved
struct WrappedModel {
  std::unique_ptr<BucketSchedule> schedule;
  std::vector<std::unique_ptr<DistributedDataParallel>> chunks;  // as given
  std::unique_ptr<optim::ChainedOptimizer> optimizer;
  Sharding sharding = Sharding::kReplicated;
  std::vector<std::string> notes;              // for people: what was resolved otherwise than asked
  std::vector<std::vector<BufferPlan>> plans;  // chunk by chunk
  uint64_t plan_hash = 0;                      // dense parameters'; the same on all dp ranks

  void wait_params() { schedule->wait_params(); }
};

// Collective over all groups. Tensors stay the caller's: their memory moves into the buffers (where
// something is sharded), their values become those of rank 0 of each data-parallel group. The
// groups must outlive the result. Throws Error, before anything is changed, on: a config that
// optim::validate or resolve_sharding refuses; no parameter; fp16; a parameter that is given twice,
// is no contiguous leaf that requires gradients, has a gradient already (wrap a model once, before
// its first backward pass), or is not the share of its logical shape that its partition_dim says;
// expert parameters without expert_dp, or cut over expert_tp; tied embeddings without their group;
// Muon without a matrix to update on a single stage; ranks whose plans differ. make_muon: none for
// TensorParallelMuon over groups.tp (Muon where that is of one rank).
WrappedModel wrap_model_chunks_with_layerwise_aware_ddp(
    const std::vector<ModelChunk>& chunks, const optim::OptimizerConfig& optimizer,
    const DistributedDataParallelConfig& config, const ParallelGroups& groups,
    const optim::MuonFactory& make_muon = nullptr);

// The groups of a mesh: gradients are reduced over dp_cp. `embedding` is left to the caller.
ParallelGroups groups_of(const comm::Mesh& mesh);

// Throws Error, naming rank and group, unless all data-parallel replicas of every parameter have
// the same bytes. Collective.
void check_replicas(const std::vector<ModelChunk>& chunks, const ParallelGroups& groups);

}  // namespace muoncore::parallel
