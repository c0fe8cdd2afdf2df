// A comparison is checked with everything that it will run: the base under each arm's overrides,
// and the start.
#include <fmt/format.h>

#include <set>

#include "muoncore/core/check.h"
#include "muoncore/train/config_checks.h"

namespace muoncore::train {
namespace {

// What the experiment sets itself, in every run.
const std::vector<std::string> kOwnedKeys = {"trainer.seed", "trainer.default_local_dir"};

void check_overrides(const Config& config, const std::string& where, ConfigKind kind,
                     const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides)
    for (const std::string& owned : kOwnedKeys)
      if (text.starts_with(owned + "="))
        fail("{}: key '{}': it sets {}, which the comparison sets for each run",
             config.origin(where), where, owned);
  try {
    load_config(kind, file, overrides);
  } catch (const Error& error) {
    fail("{}: key '{}': {}", config.origin(where), where, error.what());
  }
}

bool is_folder_name(const std::string& name) {
  auto fits = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), fits);
}

void check_arms(const Config& config, ConfigKind kind) {
  std::vector<CompareArm> arms = compare_arms(config);
  if (arms.empty()) fail_at(config, "compare.arms", "a comparison needs at least one arm");
  for (const CompareArm& arm : arms) {
    if (!is_folder_name(arm.name))
      fail_at(config, "compare.arms",
              fmt::format("the name '{}' is no folder's name; allowed: letters, digits, _ - .",
                          arm.name));
    std::vector<std::string> overrides = compare_overrides(config);
    overrides.insert(overrides.end(), arm.overrides.begin(), arm.overrides.end());
    check_overrides(config, "compare.arms", kind, config.text("compare.base"), overrides);
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

void check_compare(const Config& config) {
  if (config.is_null("compare.base"))
    fail_at(config, "compare.base", "a comparison needs the grpo or sft file of its arms");
  ConfigKind base = kind_of(config, "compare.base");
  if (base == ConfigKind::kCompare)
    fail_at(config, "compare.base", "it is a comparison itself; allowed: a grpo or sft file");
  check_seeds(config);
  check_arms(config, base);
  if (config.is_null("compare.start")) {
    if (!compare_start_overrides(config).empty())
      fail_at(config, "compare.start_overrides", "compare.start is null");
    return;
  }
  if (kind_of(config, "compare.start") != ConfigKind::kSft)
    fail_at(config, "compare.start", "allowed: an sft file");
  check_overrides(config, "compare.start", ConfigKind::kSft, config.text("compare.start"),
                  compare_start_overrides(config));
}

}  // namespace muoncore::train
