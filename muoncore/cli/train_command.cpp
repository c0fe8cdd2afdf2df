#include "muoncore/cli/train_command.h"

#include <memory>
#include <optional>
#include <vector>

#include "muoncore/cli/ranks_command.h"
#include "muoncore/train/config_ranks.h"
#include "muoncore/train/run.h"

namespace muoncore::cli {
namespace {

struct Arguments {
  std::string file;
  std::vector<std::string> overrides;
  std::optional<int64_t> nproc;
};

void train_on_ranks(const std::string& name, train::ConfigKind kind, const Arguments& arguments) {
  std::optional<train::Config> config;
  RanksCommand command;
  command.nproc = arguments.nproc;
  command.arguments = {name, arguments.file};
  command.arguments.insert(command.arguments.end(), arguments.overrides.begin(),
                           arguments.overrides.end());
  command.prepare = [&] {
    config = train::load_config(kind, arguments.file, arguments.overrides);
    return train::collective_timeout(*config);
  };
  command.run = [&](comm::World& world) { train::run_training(*config, world); };
  run_on_ranks(command);
}

}  // namespace

void add_train_command(CLI::App& app, const std::string& name, const std::string& description,
                       train::ConfigKind kind) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(name, description);
  command->add_option("-c,--config,config", arguments->file, "YAML file with verl's keys")
      ->required();
  command->add_option("overrides", arguments->overrides, "key=value ..., which win over the file");
  add_nproc(*command, arguments->nproc);
  command->callback([arguments, kind, name] { train_on_ranks(name, kind, *arguments); });
}

}  // namespace muoncore::cli
