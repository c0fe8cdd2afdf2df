// What the replays of Megatron's whole optimizer on one and on several ranks share.
#pragma once

#include <nlohmann/json.hpp>

#include "muoncore/cli/parity_groups.h"
#include "muoncore/optim/chained.h"
#include "muoncore/optim/optimizer_config.h"

namespace muoncore::cli {

inline constexpr const char* kMegatronFile = "mcore_opt.safetensors";

optim::OptimizerConfig megatron_config(const nlohmann::json& c, const UpstreamProfile& profile);
ParamSpec megatron_spec(const nlohmann::json& row, const nlohmann::json& model);
void apply_profile(optim::ChainedOptimizer& chain, const UpstreamProfile& profile);

// One case with several ranks, as threads: data and tensor parallel.
std::vector<Distance> replay_ranks(const GoldenFolder& golden, const nlohmann::json& group,
                                   const nlohmann::json& c, const UpstreamProfile& profile);
// Norms and clipping of gradients of which each of two ranks has some.
void replay_clipping_on_two_ranks(const GoldenFolder& golden, const nlohmann::json& rows,
                                  GroupReport& report);

}  // namespace muoncore::cli
