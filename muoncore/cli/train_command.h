// `muoncore sft` and `muoncore grpo` differ in their config's tree alone.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "muoncore/train/config.h"

namespace muoncore::cli {

// Adds `muoncore <name> [--config] FILE [key=value ...] [--nproc N]`.
void add_train_command(CLI::App& app, const std::string& name, const std::string& description,
                       train::ConfigKind kind);

}  // namespace muoncore::cli
