#include <iostream>
#include <memory>
#include <optional>

#include "muoncore/cli/commands.h"
#include "muoncore/core/check.h"
#include "muoncore/train/config.h"
#include "muoncore/train/config_text.h"

namespace muoncore::cli {
namespace {

struct ConfigArgs {
  std::string file;
  std::vector<std::string> overrides;
  std::string kind;
  bool files = false;

  train::ConfigKind resolved_kind() const {
    return kind.empty() ? train::detect_kind(file) : train::config_kind_from(kind);
  }
  train::Config load() const { return train::load_config(resolved_kind(), file, overrides); }
};

void add_inputs(CLI::App& command, const std::shared_ptr<ConfigArgs>& args) {
  command.add_option("file", args->file, "YAML file")->required();
  command.add_option("overrides", args->overrides, "key.path=value ...");
  command.add_option("--kind", args->kind, "grpo, sft or compare; without it the file's keys tell");
}

void check_config(const ConfigArgs& args) {
  train::Config config = args.load();
  if (args.files) train::check_files(config);
  std::cout << args.file << ": a valid " << to_string(config.kind()) << " config\n";
}

}  // namespace

void add_config(CLI::App& app) {
  CLI::App* command = app.add_subcommand("config", "check, show and document configurations");
  command->require_subcommand(1);
  auto args = std::make_shared<ConfigArgs>();

  CLI::App* check = command->add_subcommand("check", "judge a config; status 1 on any fault");
  add_inputs(*check, args);
  check->add_flag("--files", args->files, "also check that the files it names exist");
  check->callback([args] { check_config(*args); });

  CLI::App* show = command->add_subcommand(
      "show", "print every value, where it was set, and where our default differs from verl's");
  add_inputs(*show, args);
  show->callback([args] { std::cout << train::show_config(args->load()); });

  command->add_subcommand("docs", "print docs/config.md, made from the option tables")
      ->callback([] { std::cout << train::config_docs(); });
}

}  // namespace muoncore::cli
