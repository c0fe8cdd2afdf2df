#include "muoncore/cli/train_command.h"

#include <memory>
#include <vector>

#include "muoncore/train/run.h"

namespace muoncore::cli {

void add_train_command(CLI::App& app, const std::string& name, const std::string& description,
                       train::ConfigKind kind) {
  struct Arguments {
    std::string file;
    std::vector<std::string> overrides;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(name, description);
  command->add_option("-c,--config,config", arguments->file, "YAML file with verl's keys")
      ->required();
  command->add_option("overrides", arguments->overrides, "key=value ..., which win over the file");
  command->callback([arguments, kind] {
    train::run_training(train::load_config(kind, arguments->file, arguments->overrides));
  });
}

}  // namespace muoncore::cli
