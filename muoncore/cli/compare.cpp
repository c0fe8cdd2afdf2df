#include "muoncore/cli/commands.h"

namespace muoncore::cli {

void add_compare(CLI::App&) {}

}  // namespace muoncore::cli
