#include "muoncore/train/compare_collect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <functional>
#include <set>

#include "muoncore/core/check.h"
#include "muoncore/core/json_file.h"
#include "muoncore/core/timer.h"

namespace muoncore::train {
namespace {

using Runs = std::vector<std::vector<RunResult>>;
using Read = std::function<double(const RunResult&)>;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr size_t kLastSteps = 10;

std::vector<std::vector<double>> each(const Runs& runs, const Read& read) {
  std::vector<std::vector<double>> values;
  for (const auto& arm : runs) {
    values.emplace_back();
    for (const RunResult& run : arm) values.back().push_back(read(run));
  }
  return values;
}

// The metrics of the optimizer stand under the trainer's prefix.
std::string state_metric(ConfigKind kind) {
  return kind == ConfigKind::kGrpo ? "actor/optim/state_bytes" : "train/optim/state_bytes";
}

int64_t measured_state_bytes(ConfigKind kind, const RunResult& run) {
  return static_cast<int64_t>(run.metrics.series(state_metric(kind)).last());
}

// A run that took no optimizer step has no state yet: the formula says what it would be.
double state_bytes(ConfigKind kind, const RunResult& run) {
  const int64_t measured = measured_state_bytes(kind, run);
  check(measured == 0 || measured == run.formula_state_bytes,
        "{}: {} is {}, but the run's own plan (memory_bytes.optimizer_state in resolved.json) says "
        "{}",
        run.metrics.file().string(), state_metric(kind), measured, run.formula_state_bytes);
  return static_cast<double>(run.formula_state_bytes);
}

void add_memory(ConfigKind kind, const Runs& runs, std::vector<Quantity>& all) {
  all.push_back(
      {.name = "optimizer_state_bytes",
       .label = "optimizer state",
       .unit = Unit::kBytes,
       .better = Better::kLower,
       .pairing = Pairing::kExact,
       .source =
           "bytes of momentum and moments that the optimizers hold at the end (" +
           state_metric(kind) +
           "); in every run equal to what its start said by formula: 4 bytes per element that Muon "
           "updates and 8 per element that AdamW updates, and what a variant of Muon adds",
       .values = each(runs, [&](const RunResult& r) { return state_bytes(kind, r); })});
  all.push_back(
      {.name = "peak_tensor_bytes",
       .label = "peak memory of tensors",
       .unit = Unit::kBytes,
       .better = Better::kLower,
       .pairing = Pairing::kSeeds,
       .source = "the most bytes that tensors held at once in any step, counted by the allocator "
                 "(actor/perf/max_memory_allocated_gb)",
       .values = each(runs, [](const RunResult& r) {
         return kGiB * r.metrics.series("actor/perf/max_memory_allocated_gb").max();
       })});
  all.push_back({.name = "process_peak_bytes",
                 .label = "peak memory of the process",
                 .unit = Unit::kBytes,
                 .better = Better::kLower,
                 .pairing = Pairing::kSeeds,
                 .source =
                     "the process's largest resident set, libraries and what malloc keeps included "
                     "(actor/perf/cpu_memory_used_gb)",
                 .values = each(runs, [](const RunResult& r) {
                   return kGiB * r.metrics.series("actor/perf/cpu_memory_used_gb").max();
                 })});
}

void add_times(const std::vector<ArmTimes>& times, std::vector<Quantity>& all) {
  if (times.empty()) return;
  Quantity step{.name = "optimizer_step",
                .label = "optimizer_step",
                .unit = Unit::kSeconds,
                .better = Better::kLower,
                .pairing = Pairing::kTimedSteps,
                .source = "time of one optimizer step, from the alternating section",
                .values = {}};
  Quantity update{
      .name = "update_actor",
      .label = "update_actor",
      .unit = Unit::kSeconds,
      .better = Better::kLower,
      .pairing = Pairing::kTimedSteps,
      .source =
          "time of forward, backward and optimizer step on one batch, from the alternating section",
      .values = {}};
  for (const ArmTimes& arm : times) {
    step.values.push_back(arm.optimizer_step);
    update.values.push_back(arm.update);
  }
  all.push_back(std::move(step));
  all.push_back(std::move(update));
}

Quantity score(std::string name, std::string label, Better better, std::string source,
               const Runs& runs, const Read& read) {
  return {.name = std::move(name),
          .label = std::move(label),
          .unit = Unit::kScore,
          .better = better,
          .pairing = Pairing::kSeeds,
          .source = std::move(source),
          .values = each(runs, read)};
}

void add_learning(ConfigKind kind, const Runs& runs, std::vector<Quantity>& all) {
  const MetricLog& first = runs.front().front().metrics;
  bool grpo = kind == ConfigKind::kGrpo;
  std::string metric = grpo ? "critic/rewards/mean" : "train/loss";
  all.push_back(score(
      grpo ? "reward_last_10" : "loss_last_10",
      grpo ? "reward, last 10 steps" : "loss, last 10 steps",
      grpo ? Better::kHigher : Better::kLower, "mean of " + metric + " over the last 10 steps",
      runs, [&](const RunResult& r) { return r.metrics.series(metric).mean_of_last(kLastSteps); }));
  if (!grpo && first.has("val/loss"))
    all.push_back(score("held_out_loss", "held-out loss", Better::kLower,
                        "val/loss after the last step", runs,
                        [](const RunResult& r) { return r.metrics.series("val/loss").last(); }));
  std::vector<std::string> accuracies = first.names("val-core/", "/acc/mean@1");
  for (const std::string& name : accuracies) {
    std::string of =
        accuracies.size() > 1 ? fmt::format(", {}", name.substr(9, name.size() - 20)) : "";
    all.push_back(score("greedy_accuracy" + of, "greedy accuracy" + of, Better::kHigher,
                        "held-out prompts answered rightly after the last step (" + name + ")",
                        runs, [&](const RunResult& r) { return r.metrics.series(name).last(); }));
  }
}

void add_throughput(const Runs& runs, std::vector<Quantity>& all) {
  if (!runs.front().front().metrics.has("perf/throughput")) return;
  all.push_back({.name = "tokens_per_second",
                 .label = "tokens per second",
                 .unit = Unit::kPerSecond,
                 .better = Better::kHigher,
                 .pairing = Pairing::kSeeds,
                 .source = "median over the steps of perf/throughput (whole steps, prompts and "
                           "responses), with the "
                           "runs side by side",
                 .values = each(runs, [](const RunResult& r) {
                   return r.metrics.series("perf/throughput").median();
                 })});
}

bool is_plotted(const std::string& name) {
  static const std::set<std::string> whole = {
      "critic/rewards/mean", "train/loss",   "val/loss", "actor/lr", "train/lr",
      "actor/grad_norm",     "actor/entropy"};
  return whole.contains(name) || name.starts_with("val-core/") ||
         name.find("/optim/update_rms/") != std::string::npos;
}

MetricSeries series_or_none(const MetricLog& log, const std::string& name) {
  return log.has(name) ? log.series(name) : MetricSeries{};
}

std::string plural(int64_t count, const std::string& word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string per_run(const ComparePlan& plan) {
  const std::string threads = plural(plan.threads, "thread");
  return plan.nproc == 1 ? threads : fmt::format("{} of {}", plural(plan.nproc, "rank"), threads);
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "unknown";
}

}  // namespace

RunResult read_run(const std::filesystem::path& folder) {
  std::filesystem::path file = folder / "resolved.json";
  nlohmann::json resolved = read_json(file);
  check(resolved.is_object() && resolved.contains("memory_bytes") &&
            resolved["memory_bytes"].contains("optimizer_state") &&
            resolved["memory_bytes"]["optimizer_state"].is_number_integer(),
        "{}: has no integer memory_bytes.optimizer_state", file.string());
  return {.metrics = MetricLog::read(folder / "metrics.jsonl"),
          .formula_state_bytes = resolved["memory_bytes"]["optimizer_state"].get<int64_t>()};
}

std::vector<Quantity> collect_quantities(ConfigKind kind, const Runs& runs,
                                         const std::vector<ArmTimes>& times) {
  std::vector<Quantity> all;
  add_memory(kind, runs, all);
  add_times(times, all);
  add_learning(kind, runs, all);
  add_throughput(runs, all);
  return all;
}

std::vector<Curve> collect_curves(const Runs& runs) {
  // A metric of one arm alone (the update RMS of Muon's parameters) leaves the other's series
  // empty.
  std::set<std::string> names;
  for (const auto& arm : runs)
    for (const std::string& name : arm.front().metrics.names(""))
      if (is_plotted(name)) names.insert(name);
  std::vector<Curve> curves;
  for (const std::string& name : names) {
    Curve curve{.metric = name, .series = {}};
    for (const auto& arm : runs) {
      curve.series.emplace_back();
      for (const RunResult& run : arm)
        curve.series.back().push_back(series_or_none(run.metrics, name));
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

std::vector<std::string> idle_notes(ConfigKind kind, const std::vector<ReportArm>& arms,
                                    const std::vector<int64_t>& seeds, const Runs& runs) {
  std::vector<std::string> notes;
  for (size_t arm = 0; arm < runs.size(); ++arm)
    for (size_t seed = 0; seed < runs[arm].size(); ++seed)
      if (measured_state_bytes(kind, runs[arm][seed]) == 0)
        notes.push_back(fmt::format(
            "{}, seed {} took no optimizer step: in every group of every step all rewards were "
            "alike. It trained nothing; its optimizer state is the formula's.",
            arms[arm].name, seeds[seed]));
  return notes;
}

Report collect_report(const ComparePlan& plan, const std::vector<ArmTimes>& times, double seconds) {
  Report report;
  Runs runs;
  std::vector<std::string> names;
  for (const CompareArm& arm : plan.arms) {
    report.arms.push_back({arm.name, arm.overrides});
    names.push_back(arm.name);
    runs.emplace_back();
    for (int64_t seed : plan.seeds) runs.back().push_back(read_run(arm_folder(plan, arm, seed)));
  }
  std::string base = (plan.base.parent_path().filename() / plan.base.stem()).string();
  report.title = fmt::format("{}: {}, {}", base, fmt::join(names, " and "),
                             plural(static_cast<int64_t>(plan.seeds.size()), "seed"));
  report.seeds = plan.seeds;
  report.quantities = collect_quantities(plan.kind, runs, times);
  report.curves = collect_curves(runs);
  report.setup = {
      {"base", plan.base.string()},
      {"start", plan.start ? fmt::format("{}, run once per seed", plan.start->string()) : "none"},
      {"changes to every arm", fmt::format("{}", fmt::join(plan.overrides, " "))},
      {"runs", fmt::format("{} side by side, {} each", plan.jobs, per_run(plan))},
      {"timing", fmt::format("{} in turn, {}", plural(plan.timing_steps, "round"), per_run(plan))},
      {"machine", fmt::format("{}, {}", cpu_name(), plural(plan.cores, "core"))},
      {"wall time", format_duration(seconds)},
      {"folder", plan.output_dir.string()}};
  report.notes = {
      "Runs of one seed share their start, their prompts and their random numbers; another seed "
      "has a start of its own.",
      "Tokens per second were measured with other runs on the same machine: an indication. Times "
      "to rely on are those "
      "of the alternating section, measured with nothing else of this experiment running."};
  for (std::string& note : idle_notes(plan.kind, report.arms, report.seeds, runs))
    report.notes.push_back(std::move(note));
  return report;
}

}  // namespace muoncore::train
