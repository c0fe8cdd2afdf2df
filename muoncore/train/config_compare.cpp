// Options of a comparison, and its arms.
#include <fmt/format.h>

#include "muoncore/core/check.h"
#include "muoncore/train/config_tables.h"

namespace muoncore::train {
namespace {

// {a: {b: 1}, c.d: 2} -> "a.b=1", "c.d=2"
void flatten(const YamlNode& node, const std::string& prefix, std::vector<std::string>& overrides) {
  for (const auto& [key, value] : node.fields) {
    std::string path = prefix.empty() ? key : prefix + "." + key;
    bool section = value.type == YamlType::kMap && !value.fields.empty() &&
                   !path.ends_with("override_optimizer_config") &&
                   !path.ends_with("override_ddp_config") && !path.ends_with("routing_rules");
    if (section)
      flatten(value, path, overrides);
    else
      overrides.push_back(path + "=" + to_flow_yaml(value));
  }
}

std::vector<std::string> overrides_of(const YamlNode& node) {
  std::vector<std::string> overrides;
  flatten(node, "", overrides);
  return overrides;
}

}  // namespace

Options compare_options() {
  std::vector<Row> rows = {
      null_text("base", "grpo or sft file of every arm; relative to this file").file(),
      null_text("start", "sft file that is run once per seed; its model is where the arms start")
          .file(),
      mapping("arms", "{name: {key: value, ...}, ...}: what each arm changes in the base"),
      mapping("overrides", "{key: value, ...}: what all arms change in the base"),
      mapping("start_overrides", "{key: value, ...}: what the start changes in its file"),
      integers("seeds", {1, 2, 3}, "trainer.seed of the repetitions").at_least(0),
      integer("jobs", 1, "runs side by side").at_least(1),
      null_integer("threads", "of each run; null: cores / jobs").at_least(1),
      integer("timing_steps", 20, "steps of the section that times the arms in turn; 0: no timing")
          .at_least(0),
      text("output_dir", "compare", "folder of runs and report, which must be empty"),
  };
  for (Row& row : rows) row = std::move(row).added();
  return under("compare", std::move(rows));
}

std::vector<CompareArm> compare_arms(const Config& config) {
  std::vector<CompareArm> arms;
  const YamlNode& node = config.node("compare.arms");
  for (const auto& [name, overrides] : node.fields) {
    check(overrides.type == YamlType::kMap || overrides.is_null(),
          "{}: key 'compare.arms.{}': value {}; allowed: a mapping of keys to values",
          to_string(overrides.position), name, to_flow_yaml(overrides));
    arms.push_back({name, overrides_of(overrides)});
  }
  return arms;
}

std::vector<std::string> compare_overrides(const Config& config) {
  return overrides_of(config.node("compare.overrides"));
}

std::vector<std::string> compare_start_overrides(const Config& config) {
  return overrides_of(config.node("compare.start_overrides"));
}

}  // namespace muoncore::train
