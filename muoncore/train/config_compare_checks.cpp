// A comparison is checked with everything that it will run: the base under each arm's changes, and
// the start.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "muoncore/core/check.h"
#include "muoncore/train/config_checks.h"
#include "muoncore/train/config_compare.h"

namespace muoncore::train {
namespace {

// What the experiment sets itself, in every run.
bool is_owned(const std::string& path) {
  return path == "trainer.seed" || path == "trainer.default_local_dir";
}

// `where`: the key of the comparison that makes these changes, named in every message.
void check_changes(ConfigKind kind, const std::filesystem::path& file,
                   const std::vector<Change>& changes, const std::string& where, bool files) {
  try {
    YamlNode tree = read_yaml(file);
    for (const Change& change : changes) {
      check(!is_owned(change.path), "{}: key '{}': the comparison sets it for each run",
            to_string(change.value.position), change.path);
      set_path(tree, change.path, change.value);
    }
    Config config = checked_config(kind, tree);
    if (files) check_files(config);
  } catch (const Error& error) {
    fail("{} (in {})", error.what(), where);
  }
}

bool is_folder_name(const std::string& name) {
  auto fits = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), fits);
}

void check_arms(const Config& config, ConfigKind kind, bool files) {
  const size_t count = compare_arms(config).size();
  if (count < 2) fail_at(config, "compare.arms", "a comparison needs at least two arms");
  for (const auto& [name, mapping] : config.node("compare.arms").fields) {
    if (!is_folder_name(name))
      fail("{}: key 'compare.arms': '{}' is no folder's name; allowed: letters, digits, _ - .",
           to_string(mapping.position), name);
    std::vector<Change> changes = changes_of(config.node("compare.overrides"));
    for (Change& change : changes_of(mapping)) changes.push_back(std::move(change));
    if (!config.is_null("compare.start")) {  // the model of a run's start stands there
      const std::string model = kind == ConfigKind::kGrpo ? "actor_rollout_ref.model" : "model";
      YamlNode start = config.node("compare.start");
      changes.push_back({model + ".path", start});
    }
    check_changes(kind, config.text("compare.base"), changes, "compare.arms." + name, files);
  }
}

void check_seeds(const Config& config) {
  std::vector<int64_t> seeds = config.integers("compare.seeds");
  std::set<int64_t> distinct(seeds.begin(), seeds.end());
  if (seeds.empty() || distinct.size() != seeds.size())
    fail_at(config, "compare.seeds", "allowed: one or more different seeds");
}

ConfigKind kind_of(const Config& config, const std::string& path) {
  try {
    return detect_kind(config.text(path));
  } catch (const Error& error) {
    fail("{}: key '{}': {}", config.origin(path), path, error.what());
  }
}

}  // namespace

void check_compare(const Config& config, bool files) {
  if (config.is_null("compare.base"))
    fail_at(config, "compare.base", "a comparison needs the grpo or sft file of its arms");
  ConfigKind base = kind_of(config, "compare.base");
  if (base == ConfigKind::kCompare)
    fail_at(config, "compare.base", "it is a comparison itself; allowed: a grpo or sft file");
  check_seeds(config);
  check_arms(config, base, files);
  const YamlNode& start_overrides = config.node("compare.start_overrides");
  if (config.is_null("compare.start")) {
    if (!start_overrides.fields.empty())
      fail_at(config, "compare.start_overrides", "compare.start is null");
    return;
  }
  if (kind_of(config, "compare.start") != ConfigKind::kSft)
    fail_at(config, "compare.start", "allowed: an sft file");
  check_changes(ConfigKind::kSft, config.text("compare.start"), changes_of(start_overrides),
                "compare.start", files);
}

}  // namespace muoncore::train
