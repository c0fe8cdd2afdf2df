// A command that runs on one rank or on many.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "muoncore/comm/world.h"

namespace muoncore::cli {

struct RanksCommand {
  std::vector<std::string> arguments;  // this command's, for --nproc to start it again as ranks
  std::optional<int64_t> nproc;
  // Before ranks meet; returns the time-out of a collective. Where it throws, all ranks hear of it.
  std::function<std::chrono::seconds()> prepare;
  std::function<void(comm::World&)> run;  // on each rank
};

void add_nproc(CLI::App& command, std::optional<int64_t>& nproc);

// As one of the ranks that a launcher started, or as a process of its own, or, with --nproc, as the
// launcher. One error of a run is said once, by one rank that is alive.
void run_on_ranks(const RanksCommand& command);

}  // namespace muoncore::cli
