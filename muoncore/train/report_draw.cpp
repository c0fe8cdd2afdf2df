#include <cstdlib>
#include <string>

#include "muoncore/core/check.h"
#include "muoncore/train/compare_process.h"
#include "muoncore/train/report.h"

namespace muoncore::train {

void draw_report(const std::filesystem::path& folder) {
  const char* chosen = std::getenv("MUONCORE_PYTHON");
  ChildCommand command{.name = "drawing the report's plots",
                       .program = chosen != nullptr ? chosen : MUONCORE_PYTHON,
                       .arguments = {"-m", "muoncore.report", folder.string()},
                       .environment = {{"PYTHONPATH", MUONCORE_PYTHON_DIR}},
                       .log = folder / "report.log"};
  check(std::filesystem::exists(command.program),
        "{}: no such Python; set MUONCORE_PYTHON to one that has matplotlib. report.md and "
        "report.json in {} are "
        "complete",
        command.program.string(), folder.string());
  run_children({command}, 1, [](const auto&) {});
  std::filesystem::remove(command.log);
}

}  // namespace muoncore::train
