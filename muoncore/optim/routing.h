// Which optimizer updates which parameter, and why: one predicate on what the model declares (role
// and shape), never on names, used by the optimizer, by reports and later by the buffers and the
// planner.
//
// Matrices of the transformer body go to Muon; embeddings, output layer, position embeddings, MoE
// routers, norms, biases, and matrices with one row or one column go to AdamW (K. Jordan, "Muon",
// 2024: Muon is for hidden 2-D weights; Megatron-Core excludes embedding and output layer only; the
// rest of the list is design.md's).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muoncore/core/param_spec.h"

namespace muoncore::optim {

// An exception to the predicate: parameters whose whole name matches `pattern` (ECMAScript) go to
// `optimizer` ("muon" or "adam"). Rules are tried in order and the first that matches decides.
struct RoutingRule {
  std::string pattern;
  std::string optimizer;
  bool operator==(const RoutingRule&) const = default;
};

struct Route {
  std::string name;
  std::string optimizer;  // "muon" or "adam"
  std::string why;        // "matrix of the transformer body", "embedding", "rule 'lm_head.*'", ...
  std::string layout = "";  // of what Muon updates: describe_layout (matrix_layout.h)
  bool operator==(const Route&) const = default;
};

// The predicate itself, without rules.
Route route(const ParamSpec& spec);

// One route per spec, in their order. Throws on a rule that is no regular expression, names no
// optimizer, decides nothing, or sends to Muon what has no matrix shape (fewer than two
// dimensions).
std::vector<Route> route_all(const std::vector<ParamSpec>& specs,
                             const std::vector<RoutingRule>& rules = {});

uint64_t hash_routes(
    const std::vector<Route>& routes);  // of names, optimizers and layouts; ranks compare it
std::string to_string(const std::vector<Route>& routes);  // one aligned line each

}  // namespace muoncore::optim
