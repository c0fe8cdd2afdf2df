#include "muoncore/cli/commands.h"
#include "muoncore/cli/train_command.h"

namespace muoncore::cli {

void add_sft(CLI::App& app) {
  add_train_command(app, "sft",
                    "supervised fine-tuning on JSON lines or on a task's teacher (docs/config.md "
                    "lists every key)",
                    train::ConfigKind::kSft);
}

}  // namespace muoncore::cli
