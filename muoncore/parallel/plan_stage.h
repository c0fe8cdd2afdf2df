// The parameters that one rank of a pipeline stage holds, as layouts take them. All ranks of a
// stage hold the same shapes, so one list stands for all.
#pragma once

#include <cstdint>
#include <vector>

#include "muoncore/parallel/plan.h"

namespace muoncore::parallel {

// What Newton-Schulz costs the owner of a parameter, by each measure of Plan.
struct NsCosts {
  int64_t stored = 0, actual = 0, upstream = 0;
};
NsCosts ns_costs(const ParamSpec& spec, bool split_blocks);

struct StageParams {
  std::vector<LayoutParam> dense, expert;          // whole: goes to Muon
  std::vector<NsCosts> dense_costs, expert_costs;  // of each; zero where not whole
};

// `muon[i]`: whether model.params[i] goes to Muon. Tied embeddings of a pipeline stand on its first
// and its last stage. A vocabulary that tp does not divide is padded.
StageParams stage_params(const PlanModel& model, const std::vector<bool>& muon,
                         const PlanOptions& options, int64_t stage);

}  // namespace muoncore::parallel
