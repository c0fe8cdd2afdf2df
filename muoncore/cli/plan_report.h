// A plan as people and as programs read it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "muoncore/parallel/plan.h"

namespace muoncore::cli {

std::string plan_text(const parallel::PlanModel& model, const parallel::PlanOptions& options,
                      const parallel::Plan& plan);

nlohmann::ordered_json plan_json(const parallel::PlanModel& model,
                                 const parallel::PlanOptions& options, const parallel::Plan& plan);

}  // namespace muoncore::cli
