#include "muoncore/train/compare_plan.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <fstream>

#include "muoncore/comm/spawn.h"
#include "muoncore/core/check.h"
#include "muoncore/train/setup.h"

namespace muoncore::train {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void check_writes_metrics(const ComparePlan& plan, const CompareArm& arm) {
  Config config = load_config(plan.kind, plan.base, joined(plan.overrides, arm.overrides));
  std::vector<std::string> loggers = config.texts("trainer.logger");
  check(std::ranges::find(loggers, "file") != loggers.end(),
        "{}: key 'trainer.logger': a comparison reads the metrics file of its runs; add file to "
        "[{}] (arm {})",
        config.origin("trainer.logger"), fmt::format("{}", fmt::join(loggers, ", ")), arm.name);
}

fs::path log_of(const fs::path& run) { return fs::path(run).concat(".log"); }

ChildCommand command_of(const ComparePlan& plan, ConfigKind kind, const fs::path& file,
                        const fs::path& folder, const std::vector<std::string>& overrides,
                        std::string name) {
  std::vector<std::string> arguments = joined({to_string(kind), file.string()}, overrides);
  arguments.push_back(
      fmt::format("trainer.default_local_dir={}", to_flow_yaml(YamlNode::of(folder.string()))));
  arguments.push_back(fmt::format("trainer.threads={}", plan.threads));
  if (plan.nproc > 1) arguments.push_back(fmt::format("--nproc={}", plan.nproc));
  return {.name = std::move(name),
          .program = comm::this_program(),
          .arguments = std::move(arguments),
          .environment = {{"OMP_NUM_THREADS", std::to_string(plan.threads)}},
          .log = log_of(folder)};
}

// Where the last checkpoint of a run has its Hugging Face folder.
fs::path model_of(const fs::path& run) {
  std::ifstream in(run / "latest_checkpointed_iteration.txt");
  int64_t step = -1;
  in >> step;
  fs::path folder = run / fmt::format("global_step_{}", step) / "actor" / "huggingface";
  check(step >= 0 && fs::is_directory(folder), "{}: the start left no model", run.string());
  return folder;
}

}  // namespace

ComparePlan plan_comparison(const Config& config) {
  ComparePlan plan;
  plan.base = config.text("compare.base");
  plan.kind = detect_kind(plan.base);
  if (!config.is_null("compare.start")) plan.start = config.text("compare.start");
  plan.start_overrides = compare_start_overrides(config);
  plan.overrides = compare_overrides(config);
  plan.arms = compare_arms(config);
  plan.seeds = config.integers("compare.seeds");
  plan.jobs = static_cast<int>(config.integer("compare.jobs"));
  plan.cores = usable_cores();
  plan.nproc = config.integer("compare.nproc");
  plan.threads = config.is_null("compare.threads")
                     ? std::max(1, plan.cores / (plan.jobs * static_cast<int>(plan.nproc)))
                     : static_cast<int>(config.integer("compare.threads"));
  plan.timing_steps = config.integer("compare.timing_steps");
  plan.output_dir = fs::absolute(config.text("compare.output_dir")).lexically_normal();
  for (const CompareArm& arm : plan.arms) check_writes_metrics(plan, arm);
  return plan;
}

void check_output(const ComparePlan& plan) {
  const fs::path& folder = plan.output_dir;
  if (!fs::exists(folder)) return;
  check(fs::is_directory(folder), "compare.output_dir: {} is no folder", folder.string());
  check(fs::is_empty(folder),
        "compare.output_dir: {} is not empty; remove it, or name another with "
        "compare.output_dir=FOLDER",
        folder.string());
}

fs::path start_folder(const ComparePlan& plan, int64_t seed) {
  return plan.output_dir / "start" / fmt::format("seed-{}", seed);
}

fs::path arm_folder(const ComparePlan& plan, const CompareArm& arm, int64_t seed) {
  return plan.output_dir / "arms" / arm.name / fmt::format("seed-{}", seed);
}

std::vector<std::string> arm_overrides(const ComparePlan& plan, const CompareArm& arm,
                                       int64_t seed) {
  std::vector<std::string> all = joined(plan.overrides, arm.overrides);
  all.push_back(fmt::format("trainer.seed={}", seed));
  if (plan.start) {
    std::string key =
        plan.kind == ConfigKind::kGrpo ? "actor_rollout_ref.model.path" : "model.path";
    all.push_back(fmt::format(
        "{}={}", key, to_flow_yaml(YamlNode::of(model_of(start_folder(plan, seed)).string()))));
  }
  return all;
}

std::vector<ChildCommand> start_commands(const ComparePlan& plan) {
  std::vector<ChildCommand> commands;
  if (!plan.start) return commands;
  for (int64_t seed : plan.seeds) {
    std::vector<std::string> overrides = plan.start_overrides;
    overrides.push_back(fmt::format("trainer.seed={}", seed));
    commands.push_back(command_of(plan, ConfigKind::kSft, *plan.start, start_folder(plan, seed),
                                  overrides, fmt::format("start, seed {}", seed)));
  }
  return commands;
}

std::vector<ChildCommand> arm_commands(const ComparePlan& plan) {
  std::vector<ChildCommand> commands;
  for (int64_t seed : plan.seeds)
    for (const CompareArm& arm : plan.arms)
      commands.push_back(command_of(plan, plan.kind, plan.base, arm_folder(plan, arm, seed),
                                    arm_overrides(plan, arm, seed),
                                    fmt::format("{}, seed {}", arm.name, seed)));
  return commands;
}

}  // namespace muoncore::train
