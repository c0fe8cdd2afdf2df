#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muoncore/cli/commands.h"
#include "muoncore/cli/ranks_command.h"
#include "muoncore/comm/launch.h"
#include "muoncore/core/check.h"
#include "muoncore/train/compare.h"

namespace muoncore::cli {
namespace {

struct Arguments {
  std::string file;
  std::vector<std::string> overrides;
  std::optional<int64_t> nproc;
};

// What does not begin with compare. is a change of the base configuration, for every arm.
std::vector<std::string> compare_keys(const std::vector<std::string>& overrides) {
  std::vector<std::string> all;
  for (const std::string& text : overrides)
    all.push_back(text.starts_with("compare.") ? text : fmt::format("compare.overrides.{}", text));
  return all;
}

// The file and the overrides, --nproc among them, as words of a command line.
std::vector<std::string> words_of(const Arguments& arguments) {
  std::vector<std::string> words = {arguments.file};
  words.insert(words.end(), arguments.overrides.begin(), arguments.overrides.end());
  return words;
}

train::ComparePlan plan_of(const Arguments& arguments) {
  return train::plan_comparison(train::load_config(train::ConfigKind::kCompare, arguments.file,
                                                   compare_keys(arguments.overrides)));
}

void compare(Arguments arguments) {
  check(!comm::read_launch_env().launched,
        "compare starts the ranks of its runs itself: start it once, with --nproc N");
  if (arguments.nproc)
    arguments.overrides.push_back(fmt::format("compare.nproc={}", *arguments.nproc));
  train::ComparePlan plan = plan_of(arguments);
  train::Report report = train::run_comparison(plan, words_of(arguments));
  fmt::print("{}\n\n{}\nreport: {}\n", report.title, train::tables(report),
             (plan.output_dir / "report.html").string());
}

void time_on_ranks(const Arguments& arguments) {
  std::optional<train::ComparePlan> plan;
  RanksCommand command;
  command.nproc = arguments.nproc;
  command.arguments = words_of(arguments);
  command.arguments.insert(command.arguments.begin(), "compare-timing");
  command.prepare = [&] {
    plan = plan_of(arguments);
    return std::chrono::minutes(10);
  };
  command.run = [&](comm::World& world) { train::run_timing(*plan, world); };
  run_on_ranks(command);
}

}  // namespace

void add_compare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("compare",
                                         "run the same configuration with several arms and seeds, "
                                         "and report what differs beyond the spread");
  CLI::App* timing = app.add_subcommand("compare-timing", "a part of compare, which starts it");
  timing->group("");  // not in the help
  auto arguments = std::make_shared<Arguments>();
  for (CLI::App* each : {command, timing}) {
    each->add_option("FILE", arguments->file, "YAML with a compare section")->required();
    each->add_option("overrides", arguments->overrides,
                     "key=value: compare.KEY of the comparison, any other key of the base file, "
                     "for every arm");
  }
  command->add_option("--nproc", arguments->nproc, "ranks of each run: compare.nproc")
      ->check(CLI::PositiveNumber);
  add_nproc(*timing, arguments->nproc);
  command->callback([arguments] { compare(*arguments); });
  timing->callback([arguments] { time_on_ranks(*arguments); });
}

}  // namespace muoncore::cli
