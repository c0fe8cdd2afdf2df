#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "muoncore/cli/commands.h"
#include "muoncore/train/compare.h"

namespace muoncore::cli {
namespace {

struct Arguments {
  std::string file;
  std::vector<std::string> overrides;
};

// What does not begin with compare. is a change of the base configuration, for every arm.
std::vector<std::string> compare_keys(const std::vector<std::string>& overrides) {
  std::vector<std::string> all;
  for (const std::string& text : overrides)
    all.push_back(text.starts_with("compare.") ? text : fmt::format("compare.overrides.{}", text));
  return all;
}

void compare(const Arguments& arguments) {
  train::Config config = train::load_config(train::ConfigKind::kCompare, arguments.file,
                                            compare_keys(arguments.overrides));
  train::ComparePlan plan = train::plan_comparison(config);
  train::Report report = train::run_comparison(plan);
  fmt::print("{}\n\n{}\nreport: {}\n", report.title, train::tables(report),
             (plan.output_dir / "report.html").string());
}

}  // namespace

void add_compare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("compare",
                                         "run the same configuration with several arms and seeds, "
                                         "and report what differs beyond the spread");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("FILE", arguments->file, "YAML with a compare section")->required();
  command->add_option(
      "overrides", arguments->overrides,
      "key=value: compare.KEY of the comparison, any other key of the base file, for every arm");
  command->callback([arguments] { compare(*arguments); });
}

}  // namespace muoncore::cli
