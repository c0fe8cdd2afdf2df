// From a model's parameters and a config to the optimizer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "muoncore/optim/chained.h"
#include "muoncore/optim/muon.h"
#include "muoncore/optim/optimizer_config.h"

namespace muoncore::optim {

// What a config makes of the model's declarations: its layout rules applied (no splits at all under
// muon_split_qkv: false), and who updates what.
struct RoutedSpecs {
  std::vector<ParamSpec> specs;
  std::vector<Route> routes;
};

// Throws as lay_out and route_all do, on a layout rule for what Muon does not update, and on one
// that splits what muon_split_qkv: false keeps whole.
RoutedSpecs route_specs(std::vector<ParamSpec> specs, const OptimizerConfig& config);

// Throws on fp16 parameters, on one that differs from its spec's shape, is no contiguous leaf or
// appears twice.
void check_params(const std::vector<NamedParam>& params, bool muon);

// Throws on Muon when no parameter would go to it. (One pipeline stage may have none.)
void check_has_matrices(const std::vector<Route>& routes, const OptimizerConfig& config);

// Routes every parameter, makes fp32 masters of bf16 ones, and sets up the children with the
// config's learning rates and weight decays (those of step 0 come from a scheduler, if there is
// one). Throws on a config that validate() refuses, as check_params does, and on Muon when no
// parameter would go to it.
std::unique_ptr<ChainedOptimizer> build_optimizer(const std::vector<NamedParam>& params,
                                                  const OptimizerConfig& config);

// Makes the Muon of a chain, without parameters yet: an optimizer over shards, for one.
using MuonFactory = std::function<std::unique_ptr<Muon>(const MuonOptions&)>;
std::unique_ptr<Muon> local_muon(const MuonOptions& options);

// The chain over `parts`, of which params (with the specs of route_specs), routes, pieces, phases
// and exchange are set: makes children and groups and counts the pieces' matrices. Groups are those
// of all parameters, also of those of which this rank owns nothing, so that they are the same on
// every rank that holds the same parameters.
std::unique_ptr<ChainedOptimizer> build_chain(ChainedOptimizer::Parts parts,
                                              const OptimizerConfig& config,
                                              const MuonFactory& make_muon = local_muon);

}  // namespace muoncore::optim
