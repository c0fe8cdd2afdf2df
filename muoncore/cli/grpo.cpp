#include "muoncore/cli/commands.h"

namespace muoncore::cli {

void add_grpo(CLI::App&) {}

}  // namespace muoncore::cli
