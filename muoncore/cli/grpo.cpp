#include "muoncore/cli/commands.h"
#include "muoncore/cli/train_command.h"

namespace muoncore::cli {

void add_grpo(CLI::App& app) {
  add_train_command(app, "grpo",
                    "reinforcement learning with group-relative advantages (docs/config.md lists "
                    "every key)",
                    train::ConfigKind::kGrpo);
}

}  // namespace muoncore::cli
