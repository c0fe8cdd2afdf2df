#include "muoncore/cli/commands.h"

namespace muoncore::cli {

void add_generate(CLI::App&) {}

}  // namespace muoncore::cli
