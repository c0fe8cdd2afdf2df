#include "muoncore/optim/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"
#include "muoncore/optim/check_choice.h"
#include "muoncore/optim/matrix_layout.h"

namespace muoncore::optim {
namespace {

const std::vector<std::string> kOptimizers{"muon", "adam"};

struct CompiledRule {
  RoutingRule rule;
  std::regex regex;
  int64_t matched = 0;  // parameters whose name it matches
  int64_t decided = 0;  // those that no earlier rule had taken
};

CompiledRule compile(const RoutingRule& rule) {
  check_choice(fmt::format("routing rule '{}'", rule.pattern), rule.optimizer, kOptimizers);
  try {
    return {rule, std::regex(rule.pattern, std::regex::ECMAScript)};
  } catch (const std::regex_error& error) {
    fail("routing rule '{}' is no regular expression: {}", rule.pattern, error.what());
  }
}

// The first rule that matches, if any; counts what every rule matches.
CompiledRule* deciding_rule(std::vector<CompiledRule>& rules, const std::string& name) {
  CompiledRule* first = nullptr;
  for (auto& rule : rules) {
    if (!std::regex_match(name, rule.regex)) continue;
    ++rule.matched;
    if (first) continue;
    first = &rule;
    ++rule.decided;
  }
  return first;
}

}  // namespace

Route route(const ParamSpec& spec) {
  const auto shape = matrix_shape(spec.shape, spec.flatten);
  if (spec.role != ParamRole::kMatrix) return {spec.name, "adam", to_string(spec.role)};
  if (shape.size() < 2) return {spec.name, "adam", "fewer than two dimensions"};
  if (shape.size() > 3) return {spec.name, "adam", "more than three dimensions"};
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  if (rows == 1) return {spec.name, "adam", "one row"};
  if (columns == 1) return {spec.name, "adam", "one column"};
  return {spec.name, "muon", "matrix of the transformer body"};
}

std::vector<Route> route_all(const std::vector<ParamSpec>& specs,
                             const std::vector<RoutingRule>& rules) {
  std::vector<CompiledRule> compiled;
  for (const auto& rule : rules) compiled.push_back(compile(rule));
  std::vector<Route> routes;
  for (const auto& spec : specs) {
    routes.push_back(route(spec));
    if (const CompiledRule* found = deciding_rule(compiled, spec.name)) {
      const RoutingRule& rule = found->rule;
      const size_t dimensions = matrix_shape(spec.shape, spec.flatten).size();
      check(rule.optimizer != "muon" || dimensions == 2 || dimensions == 3,
            "routing rule '{}' sends {} to muon, but it has {} dimensions: Muon takes matrices",
            rule.pattern, spec.name, dimensions);
      routes.back() = {spec.name, rule.optimizer, fmt::format("rule '{}'", rule.pattern)};
    }
    if (routes.back().optimizer == "muon") routes.back().layout = describe_layout(spec);
  }
  for (const auto& rule : compiled)
    check(rule.decided > 0, "routing rule '{}' decides nothing: {}", rule.rule.pattern,
          rule.matched > 0 ? "earlier rules take all that it matches"
                           : "it matches the whole name of no parameter");
  return routes;
}

uint64_t hash_routes(const std::vector<Route>& routes) {
  std::string text;
  for (const auto& route : routes)
    text += route.name + '\0' + route.optimizer + '\0' + route.layout + '\n';
  return hash_name(text);
}

std::string to_string(const std::vector<Route>& routes) {
  size_t width = 0;
  for (const auto& route : routes) width = std::max(width, route.name.size());
  std::string text;
  for (const auto& route : routes)
    text += fmt::format("{:<{}}  {:<4}  {}{}{}\n", route.name, width, route.optimizer, route.why,
                        route.layout.empty() ? "" : "; ", route.layout);
  return text;
}

}  // namespace muoncore::optim
