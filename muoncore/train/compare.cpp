#include "muoncore/train/compare.h"

#include "muoncore/core/counting_allocator.h"
#include "muoncore/core/log.h"
#include "muoncore/core/memory.h"
#include "muoncore/core/timer.h"
#include "muoncore/train/compare_collect.h"
#include "muoncore/train/compare_progress.h"
#include "muoncore/train/compare_timing.h"

namespace muoncore::train {
namespace {

namespace fs = std::filesystem;

void run_all(const ComparePlan& plan, const std::vector<ChildCommand>& commands,
             const std::vector<fs::path>& folders) {
  for (const ChildCommand& command : commands) fs::create_directories(command.log.parent_path());
  CompareProgress progress(commands, folders);
  run_children(commands, plan.jobs, [&](const auto& now) { progress.observe(now); });
}

void run_starts(const ComparePlan& plan) {
  std::vector<fs::path> folders;
  for (int64_t seed : plan.seeds) folders.push_back(start_folder(plan, seed));
  std::vector<ChildCommand> commands = start_commands(plan);
  if (commands.empty()) return;
  log_info("compare: {} starts, {} side by side", commands.size(), plan.jobs);
  run_all(plan, commands, folders);
}

void run_arms(const ComparePlan& plan) {
  std::vector<fs::path> folders;  // in the order of arm_commands
  for (int64_t seed : plan.seeds)
    for (const CompareArm& arm : plan.arms) folders.push_back(arm_folder(plan, arm, seed));
  log_info("compare: {} arms x {} seeds, {} side by side", plan.arms.size(), plan.seeds.size(),
           plan.jobs);
  run_all(plan, arm_commands(plan), folders);
}

std::vector<ArmTimes> run_timing(const ComparePlan& plan) {
  if (plan.timing_steps == 0) return {};
  log_info("compare: timing, {} rounds of alternating steps in one process", plan.timing_steps);
  return time_arms(plan);
}

}  // namespace

Report run_comparison(const ComparePlan& plan) {
  keep_freed_memory();  // as the runs do, so that the timing section measures a process like theirs
  install_counting_allocator();
  Stopwatch watch;
  run_starts(plan);
  run_arms(plan);
  std::vector<ArmTimes> times = run_timing(plan);
  Report report = collect_report(plan, times, watch.seconds());
  write_report(report, plan.output_dir);
  draw_report(plan.output_dir);
  return report;
}

}  // namespace muoncore::train
