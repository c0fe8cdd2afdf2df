// Who owns what, decided before any buffer exists: plain data, computed alike by every rank that
// holds the same parameters.
//
// Three ways to share an optimizer's work out over the data-parallel ranks:
//  replicated                     every rank gets all gradients and updates everything.
//  DistributedOptimizer           ZeRO-1 (Rajbhandari et al., 2020): every bucket is cut into one
//                                 shard per rank, wherever the cuts fall; each rank reduces, keeps
//                                 state for and updates its shards. For AdamW, whose update is
//                                 element by element.
//  LayerWiseDistributedOptimizer  matrices that Muon updates stay whole on one owner each, which
//                                 alone has their momentum and masters and orthogonalizes them; all
//                                 other parameters as above, in buffers of their own. Source:
//                                 Megatron-Core 0.19.2 (layer_wise_optimizer.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muoncore/optim/optimizer_config.h"
#include "muoncore/optim/routing.h"
#include "muoncore/parallel/distributed_data_parallel.h"
#include "muoncore/parallel/model_chunk.h"

namespace muoncore::parallel {

enum class Sharding { kReplicated, kDistributedOptimizer, kLayerWiseDistributedOptimizer };
const char* to_string(Sharding sharding);

struct ResolvedSharding {
  Sharding sharding = Sharding::kReplicated;
  std::string note;  // what was resolved otherwise than asked, and why; "" where nothing was
};

// Muon with use_distributed_optimizer means the layer-wise one. Throws Error on the layer-wise one
// without Muon, and on overlap_param_gather where no parameter is gathered.
ResolvedSharding resolve_sharding(const optim::OptimizerConfig& optimizer,
                                  const DistributedDataParallelConfig& config);

// The buffers of all chunks, chunk by chunk: one per dtype, dense or expert, whole or cut, that has
// parameters. routes: one per parameter of all chunks, in order.
std::vector<std::vector<BufferPlan>> plan_buffers(const std::vector<ModelChunk>& chunks,
                                                  const std::vector<optim::Route>& routes,
                                                  Sharding sharding,
                                                  const DistributedDataParallelConfig& config,
                                                  const ParallelGroups& groups);

// Of names, shapes and places of all parameters that are replicated as `expert` says.
uint64_t hash_plan(const std::vector<ModelChunk>& chunks,
                   const std::vector<std::vector<BufferPlan>>& plans, bool expert);

}  // namespace muoncore::parallel
