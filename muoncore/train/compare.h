// The experiment: the same configuration with several arms and seeds, from the same start, and a
// report that says no more than the spread over seeds carries.
#pragma once

#include "muoncore/comm/world.h"
#include "muoncore/train/compare_plan.h"
#include "muoncore/train/report.h"

namespace muoncore::train {

// Runs everything and writes <output_dir>/report.{json,md,html} and the plots; says on the log how
// it gets on. Throws Error when a run fails (the others are ended first) and when the plots cannot
// be drawn (the other files are complete then).
// `words`: how the program was told of the plan, file and overrides, to tell the ranks of the
// timing. Where a run has one rank, this process does the timing.
Report run_comparison(const ComparePlan& plan, const std::vector<std::string>& words);

// The timing section on several ranks, as `muoncore compare-timing` starts them: rank 0 writes it
// to <output_dir>/timing.json.
void run_timing(const ComparePlan& plan, comm::World& world);

}  // namespace muoncore::train
