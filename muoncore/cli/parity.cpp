// muoncore parity: replays the results that Megatron-Core, Emerging-Optimizers and torch left
// behind, to show that this build computes the same on this machine.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "muoncore/cli/commands.h"
#include "muoncore/cli/parity_groups.h"

namespace muoncore::cli {
namespace {

using Replay = GroupReport (*)(const GoldenFolder&, const UpstreamProfile&);

struct Group {
  const char* name;
  Replay replay;
};

constexpr Group kGroups[] = {
    {"newton_schulz", replay_newton_schulz},
    {"newton_schulz_alignment", replay_alignment},
    {"muon_trajectories", replay_trajectories},
    {"torch_muon", replay_torch_muon},
    {"gram_newton_schulz", replay_gram},
    {"scale_factors", replay_scale_factors},
    {"param_scheduler", replay_scheduler},
    {"errors", replay_errors},
    {"tensor_parallel_muon", replay_tensor_parallel},
    {"megatron_optimizer", replay_megatron},
    {"layouts", replay_layouts},
};

void run(const std::string& folder) {
  const GoldenFolder golden(folder);
  const UpstreamProfile& profile = kMegatron0192;
  std::cout << "goldens of " << folder << ", replayed under the profile " << profile.name << "\n";
  int64_t passed = 0, failed = 0, skipped = 0;
  auto add = [&](const GroupReport& report) {
    report.print(std::cout);
    passed += report.passed();
    failed += report.failed();
    skipped += report.skipped();
  };
  for (const Group& group : kGroups)
    if (golden.has_group(group.name)) add(group.replay(golden, profile));
  for (const auto& [name, content] : golden.groups().items()) {
    if (std::any_of(std::begin(kGroups), std::end(kGroups),
                    [&](const Group& g) { return name == g.name; }))
      continue;
    GroupReport unknown(name);
    unknown.skip(name, "this build does not know the group");
    add(unknown);
  }
  std::cout << fmt::format("{} passed, {} failed, {} skipped\n", passed, failed, skipped);
  if (failed > 0) throw ExitStatus{1};
}

}  // namespace

void add_parity(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "parity", "replay golden results of Megatron, Emerging-Optimizers and torch");
  auto folder = std::make_shared<std::string>();
  command->add_option("--golden", *folder, "folder with manifest.json and its files")->required();
  command->callback([folder] { run(*folder); });
}

}  // namespace muoncore::cli
