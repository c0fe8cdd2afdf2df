// One function per group of the golden manifest.
#pragma once

#include "muoncore/cli/parity_golden.h"
#include "muoncore/cli/parity_profile.h"
#include "muoncore/cli/parity_report.h"
#include "muoncore/muon/newton_schulz.h"

namespace muoncore::cli {

GroupReport replay_newton_schulz(const GoldenFolder& golden, const UpstreamProfile& profile);
GroupReport replay_alignment(const GoldenFolder& golden, const UpstreamProfile& profile);
GroupReport replay_trajectories(const GoldenFolder& golden, const UpstreamProfile& profile);
GroupReport replay_torch_muon(const GoldenFolder& golden, const UpstreamProfile& profile);
GroupReport replay_scale_factors(const GoldenFolder& golden, const UpstreamProfile& profile);
GroupReport replay_scheduler(const GoldenFolder& golden, const UpstreamProfile& profile);
GroupReport replay_errors(const GoldenFolder& golden, const UpstreamProfile& profile);
GroupReport replay_tensor_parallel(const GoldenFolder& golden, const UpstreamProfile& profile);
GroupReport replay_megatron(const GoldenFolder& golden, const UpstreamProfile& profile);
GroupReport replay_gram(const GoldenFolder& golden, const UpstreamProfile& profile);
GroupReport replay_layouts(const GoldenFolder& golden, const UpstreamProfile& profile);

// MuonOptions from a golden's `hyper` (upstream's names), under the profile.
optim::MuonOptions muon_options(const nlohmann::json& hyper, const UpstreamProfile& profile);

}  // namespace muoncore::cli
