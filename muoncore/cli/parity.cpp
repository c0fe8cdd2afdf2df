#include "muoncore/cli/commands.h"

namespace muoncore::cli {

void add_parity(CLI::App&) {}

}  // namespace muoncore::cli
