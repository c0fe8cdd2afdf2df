// From the files of finished runs, and the timing, to the report.
#pragma once

#include <vector>

#include "muoncore/train/compare_plan.h"
#include "muoncore/train/compare_timing.h"
#include "muoncore/train/report.h"

namespace muoncore::train {

// What one run left: its metrics, and the optimizer state that the formula asks for (4 bytes per
// element that Muon updates, 8 per element of AdamW's).
struct RunResult {
  MetricLog metrics;
  int64_t formula_state_bytes = 0;
};

// Reads metrics.jsonl and resolved.json of a run's folder. Throws Error with file and reason.
RunResult read_run(const std::filesystem::path& folder);

// The rows of the table. `runs` is [arm][seed]; `times` has one entry per arm, or none (no timing).
// Throws Error that names file and metric when a run lacks one, and when the optimizer state of a
// run that took a step is not what the formula says.
std::vector<Quantity> collect_quantities(ConfigKind kind,
                                         const std::vector<std::vector<RunResult>>& runs,
                                         const std::vector<ArmTimes>& times);

// Every metric that the plots show and every run has.
std::vector<Curve> collect_curves(const std::vector<std::vector<RunResult>>& runs);

// A sentence for each run ([arm][seed]) that took no optimizer step, and so trained nothing.
std::vector<std::string> idle_notes(ConfigKind kind, const std::vector<ReportArm>& arms,
                                    const std::vector<int64_t>& seeds,
                                    const std::vector<std::vector<RunResult>>& runs);

// The whole report of a plan whose runs are done.
Report collect_report(const ComparePlan& plan, const std::vector<ArmTimes>& times, double seconds);

}  // namespace muoncore::train
