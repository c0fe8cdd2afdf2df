// Options of a comparison, and its arms.
#include "muoncore/train/config_compare.h"

#include "muoncore/core/check.h"
#include "muoncore/train/config_tables.h"

namespace muoncore::train {
namespace {

// Mappings that are values themselves, not ways to other keys.
bool is_value(const std::string& path) {
  return path.ends_with(".override_optimizer_config") || path.ends_with(".override_ddp_config") ||
         path.ends_with(".routing_rules") || path.ends_with(".muon_matrix_layouts");
}

void flatten(const YamlNode& node, const std::string& prefix, std::vector<Change>& changes) {
  for (const auto& [key, value] : node.fields) {
    std::string path = prefix.empty() ? key : prefix + "." + key;
    if (value.type == YamlType::kMap && !value.fields.empty() && !is_value("." + path))
      flatten(value, path, changes);
    else
      changes.push_back({path, value});
  }
}

std::vector<std::string> as_overrides(const std::vector<Change>& changes) {
  std::vector<std::string> overrides;
  for (const Change& change : changes)
    overrides.push_back(change.path + "=" + to_flow_yaml(change.value));
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
      integer("nproc", 1, "ranks of each run, and of the timing").at_least(1),
      null_integer("threads", "of each rank; null: cores / (jobs * nproc)").at_least(1),
      integer("timing_steps", 20, "steps of the section that times the arms in turn; 0: no timing")
          .at_least(20)
          .also(0),
      text("output_dir", "compare", "folder of runs and report, which must be empty"),
  };
  for (Row& row : rows) row = std::move(row).added();
  return under("compare", std::move(rows));
}

std::vector<Change> changes_of(const YamlNode& mapping) {
  std::vector<Change> changes;
  flatten(mapping, "", changes);
  return changes;
}

std::vector<CompareArm> compare_arms(const Config& config) {
  std::vector<CompareArm> arms;
  for (const auto& [name, mapping] : config.node("compare.arms").fields) {
    check(mapping.type == YamlType::kMap || mapping.is_null(),
          "{}: key 'compare.arms.{}': value {}; allowed: a mapping of keys to values",
          to_string(mapping.position), name, to_flow_yaml(mapping));
    arms.push_back({name, as_overrides(changes_of(mapping))});
  }
  return arms;
}

std::vector<std::string> compare_overrides(const Config& config) {
  return as_overrides(changes_of(config.node("compare.overrides")));
}

std::vector<std::string> compare_start_overrides(const Config& config) {
  return as_overrides(changes_of(config.node("compare.start_overrides")));
}

}  // namespace muoncore::train
