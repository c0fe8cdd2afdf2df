#include "muoncore/cli/commands.h"

namespace muoncore::cli {

void add_config(CLI::App&) {}

}  // namespace muoncore::cli
