#include "muoncore/cli/commands.h"

namespace muoncore::cli {

void add_sft(CLI::App&) {}

}  // namespace muoncore::cli
