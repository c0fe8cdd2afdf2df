// From a model's parameters and a config to the optimizer.
#pragma once

#include <memory>
#include <vector>

#include "muoncore/optim/chained.h"
#include "muoncore/optim/optimizer_config.h"

namespace muoncore::optim {

// Routes every parameter, makes fp32 masters of bf16 ones, and sets up the children with the
// config's learning rates and weight decays (those of step 0 come from a scheduler, if there is
// one). Throws on a config that validate() refuses, on fp16 parameters, on a parameter that differs
// from its spec's shape, is no contiguous leaf or appears twice, and on Muon when no parameter
// would go to it.
std::unique_ptr<ChainedOptimizer> build_optimizer(const std::vector<NamedParam>& params,
                                                  const OptimizerConfig& config);

}  // namespace muoncore::optim
