#include <exception>
#include <iostream>

#include "muoncore/cli/commands.h"
#include "muoncore/core/check.h"

int main(int argc, char** argv) {
  CLI::App app{"muoncore: train language models with the Muon optimizer"};
  app.require_subcommand(1);
  app.set_version_flag("--version", MUONCORE_VERSION);
  muoncore::cli::add_all(app);
  try {
    app.parse(argc, argv);
    std::cout.flush();
    muoncore::check(std::cout.good(), "cannot write to standard output");
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  } catch (const muoncore::cli::ExitStatus& e) {
    return e.status;
  } catch (const std::exception& e) {
    std::cout.flush();
    std::cerr << fmt::format("error: {}\n", e.what());  // in one piece: other ranks speak, too
    return 1;
  }
  return 0;
}
