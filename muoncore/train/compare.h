// The experiment: the same configuration with several arms and seeds, from the same start, and a
// report that says no more than the spread over seeds carries.
#pragma once

#include "muoncore/train/compare_plan.h"
#include "muoncore/train/report.h"

namespace muoncore::train {

// Runs everything and writes <output_dir>/report.{json,md,html} and the plots; says on the log how
// it gets on. Throws Error when a run fails (the others are ended first) and when the plots cannot
// be drawn (the other files are complete then).
Report run_comparison(const ComparePlan& plan);

}  // namespace muoncore::train
