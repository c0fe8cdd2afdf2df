#include "muoncore/cli/commands.h"

namespace muoncore::cli {

void add_all(CLI::App& app) {
  add_grpo(app);
  add_sft(app);
  add_compare(app);
  add_generate(app);
  add_config(app);
  add_parity(app);
  add_plan(app);
}

}  // namespace muoncore::cli
