#include "muoncore/train/config.h"

#include <fmt/format.h>

#include "muoncore/core/check.h"
#include "muoncore/train/config_checks.h"
#include "muoncore/train/config_tables.h"

namespace muoncore::train {

const char* to_string(ConfigKind kind) {
  switch (kind) {
    case ConfigKind::kGrpo:
      return "grpo";
    case ConfigKind::kSft:
      return "sft";
    case ConfigKind::kCompare:
      return "compare";
  }
  return "?";
}

ConfigKind config_kind_from(const std::string& name) {
  for (ConfigKind kind : {ConfigKind::kGrpo, ConfigKind::kSft, ConfigKind::kCompare})
    if (name == to_string(kind)) return kind;
  fail("unknown kind of config '{}'; allowed: grpo, sft, compare", name);
}

bool Config::declares(const std::string& path) const { return table_->find(path) != nullptr; }

const YamlNode& Config::node(const std::string& path) const {
  auto found = values_.find(path);
  check(found != values_.end(), "the {} config declares no key '{}'", to_string(kind_), path);
  return found->second;
}

const YamlNode& Config::typed(const std::string& path, OptionType type) const {
  const YamlNode& value = node(path);
  OptionType declared = table_->find(path)->type;
  if (declared == OptionType::kTextOrTexts) declared = OptionType::kTexts;
  check(declared == type, "key '{}' is declared as {}, and asked for as {}", path,
        to_string(declared), to_string(type));
  check(!value.is_null(), "{}: key '{}' is null where a value is needed",
        muoncore::to_string(value.position), path);
  return value;
}

bool Config::flag(const std::string& path) const { return typed(path, OptionType::kFlag).boolean; }

int64_t Config::integer(const std::string& path) const {
  return typed(path, OptionType::kInteger).integer;
}

double Config::real(const std::string& path) const {
  bool whole = declares(path) && table_->find(path)->type == OptionType::kInteger;
  return typed(path, whole ? OptionType::kInteger : OptionType::kReal).real;
}

std::string Config::text(const std::string& path) const {
  return typed(path, OptionType::kText).text;
}

std::vector<double> Config::reals(const std::string& path) const {
  std::vector<double> values;
  for (const YamlNode& item : typed(path, OptionType::kReals).items) values.push_back(item.real);
  return values;
}

std::vector<int64_t> Config::integers(const std::string& path) const {
  std::vector<int64_t> values;
  for (const YamlNode& item : typed(path, OptionType::kIntegers).items)
    values.push_back(item.integer);
  return values;
}

std::vector<std::string> Config::texts(const std::string& path) const {
  std::vector<std::string> values;
  for (const YamlNode& item : typed(path, OptionType::kTexts).items) values.push_back(item.text);
  return values;
}

bool Config::is_null(const std::string& path) const { return node(path).is_null(); }

std::string Config::origin(const std::string& path) const {
  return muoncore::to_string(node(path).position);
}

std::string Config::optim_prefix() const { return train::optim_prefix(kind_); }
std::string Config::model_prefix() const { return train::model_prefix(kind_); }
std::string Config::engine_prefix() const { return train::engine_prefix(kind_); }
std::string Config::checkpoint_prefix() const { return train::checkpoint_prefix(kind_); }

namespace {

// clip_ratio stands for both bounds where they are not set themselves; verl ignores it.
void derive_clip_ratios(ResolvedOptions& values) {
  const std::string actor = "actor_rollout_ref.actor.";
  const YamlNode& both = values.at(actor + "clip_ratio");
  if (both.position.file.empty()) return;
  for (const char* side : {"clip_ratio_low", "clip_ratio_high"})
    if (YamlNode& value = values.at(actor + side); value.position.file.empty()) value = both;
}

void derive_run_directory(ResolvedOptions& values) {
  YamlNode& folder = values.at("trainer.default_local_dir");
  if (!folder.is_null()) return;
  Position position = folder.position;
  folder = YamlNode::of(fmt::format("checkpoints/{}/{}", values.at("trainer.project_name").text,
                                    values.at("trainer.experiment_name").text));
  folder.position = position;
}

// The files that a comparison names are relative to the comparison's own file.
void make_absolute(YamlNode& value) {
  if (value.is_null()) return;
  std::filesystem::path folder = std::filesystem::current_path();
  if (value.position.line > 0)
    folder = std::filesystem::absolute(value.position.file).parent_path();
  value.text = (folder / value.text).lexically_normal().string();
}

}  // namespace

Config resolve_config(ConfigKind kind, const YamlNode& tree) {
  Config config;
  config.kind_ = kind;
  config.table_ = &option_table(kind);
  config.values_ = config.table_->resolve(tree);
  if (kind == ConfigKind::kCompare) {
    make_absolute(config.values_.at("compare.base"));
    make_absolute(config.values_.at("compare.start"));
    return config;
  }
  derive_run_directory(config.values_);
  if (kind == ConfigKind::kGrpo) derive_clip_ratios(config.values_);
  return config;
}

Config checked_config(ConfigKind kind, const YamlNode& tree) {
  Config config = resolve_config(kind, tree);
  if (kind == ConfigKind::kCompare) {
    check_compare(config);
    return config;
  }
  check_trainer(config);
  check_model(config);
  check_optimizer(config);
  check_data(config);
  if (kind == ConfigKind::kGrpo) check_grpo(config);
  return config;
}

Config load_config(ConfigKind kind, const std::filesystem::path& file,
                   const std::vector<std::string>& overrides) {
  YamlNode tree = file.empty() ? YamlNode::map({}) : read_yaml(file);
  for (const std::string& text : overrides) {
    // A key of the base, for every arm.
    bool of_base = kind == ConfigKind::kCompare && !text.starts_with("compare.");
    apply_override(tree, of_base ? "compare.overrides." + text : text);
  }
  return checked_config(kind, tree);
}

ConfigKind detect_kind(const std::filesystem::path& file) {
  YamlNode tree = read_yaml(file);
  auto has_any = [&](std::initializer_list<const char*> keys) {
    return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return tree.find(key); });
  };
  if (has_any({"compare"})) return ConfigKind::kCompare;
  bool grpo = has_any({"actor_rollout_ref", "algorithm"});
  bool sft = has_any({"model", "engine", "optim", "checkpoint"});
  check(grpo != sft,
        "{}: cannot tell which command this is for ({}); say --kind grpo, sft or compare",
        file.string(),
        grpo ? "it has keys of grpo (actor_rollout_ref, algorithm) and of sft (model, engine, "
               "optim, checkpoint)"
             : "it has none of the keys actor_rollout_ref, algorithm, model, engine, optim, "
               "checkpoint, compare");
  return grpo ? ConfigKind::kGrpo : ConfigKind::kSft;
}

}  // namespace muoncore::train
