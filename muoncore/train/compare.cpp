#include "muoncore/train/compare.h"

#include "muoncore/comm/spawn.h"
#include "muoncore/core/counting_allocator.h"
#include "muoncore/core/json_file.h"
#include "muoncore/core/log.h"
#include "muoncore/core/memory.h"
#include "muoncore/core/timer.h"
#include "muoncore/train/compare_collect.h"
#include "muoncore/train/compare_progress.h"
#include "muoncore/train/compare_timing.h"
#include "muoncore/train/run_dir.h"

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

fs::path timing_file(const ComparePlan& plan) { return plan.output_dir / "timing.json"; }

std::vector<ArmTimes> time_on_ranks(const ComparePlan& plan,
                                    const std::vector<std::string>& words) {
  std::vector<std::string> arguments = {"compare-timing"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  arguments.push_back(fmt::format("--nproc={}", plan.nproc));
  const ChildCommand command = {.name = "timing",
                                .program = comm::this_program(),
                                .arguments = std::move(arguments),
                                .environment = {{"OMP_NUM_THREADS", std::to_string(plan.threads)}},
                                .log = plan.output_dir / "timing.log"};
  run_children({command}, 1, [](const auto&) {});
  std::vector<ArmTimes> times;
  for (const auto& arm : read_json(timing_file(plan)))
    times.push_back({.optimizer_step = arm.at("optimizer_step"), .update = arm.at("update")});
  return times;
}

std::vector<ArmTimes> time_all(const ComparePlan& plan, const std::vector<std::string>& words) {
  if (plan.timing_steps == 0) return {};
  log_info("compare: timing, {} rounds of alternating steps on {} rank{}", plan.timing_steps,
           plan.nproc, plan.nproc == 1 ? "" : "s");
  if (plan.nproc > 1) return time_on_ranks(plan, words);
  const Ranks alone;
  return time_arms(plan, alone);
}

}  // namespace

void run_timing(const ComparePlan& plan, comm::World& world) {
  install_counting_allocator();
  keep_freed_memory();
  const Ranks ranks(world.group(), world.factory(), world.env().local_world_size);
  nlohmann::json json = nlohmann::json::array();
  for (const ArmTimes& arm : time_arms(plan, ranks))
    json.push_back({{"optimizer_step", arm.optimizer_step}, {"update", arm.update}});
  if (ranks.rank() == 0) write_file_atomically(timing_file(plan), json.dump(1) + "\n");
}

Report run_comparison(const ComparePlan& plan, const std::vector<std::string>& words) {
  check_output(plan);
  keep_freed_memory();  // as the runs do, so that the timing section measures a process like theirs
  install_counting_allocator();
  Stopwatch watch;
  run_starts(plan);
  run_arms(plan);
  std::vector<ArmTimes> times = time_all(plan, words);
  Report report = collect_report(plan, times, watch.seconds());
  write_report(report, plan.output_dir);
  draw_report(plan.output_dir);
  return report;
}

}  // namespace muoncore::train
