// How a run is spread over ranks, as its config says.
#pragma once

#include <chrono>

#include "muoncore/comm/launch.h"
#include "muoncore/parallel/model_chunk.h"
#include "muoncore/train/config.h"

namespace muoncore::train {

// The engine's keys, override_ddp_config the last word (as in verl), and the optimizer's
// use_layer_wise_distributed_optimizer. Gradients are summed, since losses are divided by the
// numbers of the whole batch.
parallel::DistributedDataParallelConfig ddp_config(const Config& config);

// nccl_timeout: of a collective.
std::chrono::seconds collective_timeout(const Config& config);

// Throws Error, naming both numbers, when trainer.nnodes or trainer.n_gpus_per_node is set and the
// launcher started something else, and when a batch has fewer rows than there are ranks.
void check_launch(const Config& config, const comm::LaunchEnv& env);

}  // namespace muoncore::train
