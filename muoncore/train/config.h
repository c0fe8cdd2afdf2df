// The configuration of a run, with verl's keys: read from YAML and `key=value` overrides, checked,
// and resolved, so that every declared key of the command's tree has a value. Priority: default <
// file < command line.
//
// The trees (docs/config.md lists every key):
//   grpo     actor_rollout_ref.{model, actor.{optim, megatron, checkpoint}, rollout, ref},
//            algorithm, data, trainer
//   sft      model, engine, optim, data, checkpoint, trainer
//   compare  compare.*, naming a grpo or sft file as its base
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "muoncore/core/option_table.h"
#include "muoncore/core/yaml_tree.h"

namespace muoncore::train {

enum class ConfigKind { kGrpo, kSft, kCompare };

const char* to_string(ConfigKind kind);                // "grpo", "sft", "compare"
ConfigKind config_kind_from(const std::string& name);  // the inverse; throws Error on another name

// Getters take the full dotted path ("actor_rollout_ref.actor.optim.lr") and throw Error on a path
// that the tree does not declare, on another type, and on null (ask is_null first for a nullable
// option).
class Config {
 public:
  ConfigKind kind() const { return kind_; }

  bool flag(const std::string& path) const;
  int64_t integer(const std::string& path) const;
  double real(const std::string& path) const;  // an integer counts as a real
  std::string text(const std::string& path) const;
  std::vector<double> reals(const std::string& path) const;
  std::vector<int64_t> integers(const std::string& path) const;
  std::vector<std::string> texts(const std::string& path) const;
  bool is_null(const std::string& path) const;
  bool declares(const std::string& path) const;

  // As it was written (or the default), with its position: for mappings such as compare.arms.
  const YamlNode& node(const std::string& path) const;

  // "default", "FILE:LINE" or "command line".
  std::string origin(const std::string& path) const;

  // The optimizer's, the model's and the engine's subtree in this kind of tree:
  // "actor_rollout_ref.actor.optim" or "optim", "actor_rollout_ref.model" or "model",
  // "actor_rollout_ref.actor.megatron" or "engine", "actor_rollout_ref.actor.checkpoint" or
  // "checkpoint".
  std::string optim_prefix() const;
  std::string model_prefix() const;
  std::string engine_prefix() const;
  std::string checkpoint_prefix() const;

  const OptionTable& table() const { return *table_; }
  const ResolvedOptions& values() const { return values_; }

 private:
  friend Config resolve_config(ConfigKind kind, const YamlNode& tree);
  const YamlNode& typed(const std::string& path, OptionType type) const;

  ConfigKind kind_ = ConfigKind::kGrpo;
  const OptionTable* table_ = nullptr;  // lives as long as the program
  ResolvedOptions values_;
};

// Reads `file` (empty path: defaults alone), applies the overrides, checks all of it (also across
// keys) and resolves. For kCompare also every arm's, the base's and the start's own configuration;
// an override that does not begin with "compare." goes to compare.overrides. Throws Error with
// file, line and key.
Config load_config(ConfigKind kind, const std::filesystem::path& file,
                   const std::vector<std::string>& overrides);

// The kind that the top-level keys of `file` belong to. Throws when they fit none.
ConfigKind detect_kind(const std::filesystem::path& file);

// Throws Error when a file or folder that the config names does not exist (`config check --files`).
void check_files(const Config& config);

// What follows from a config for other rooms (optimizer_config, model_config_json, resolved_json):
// config_derived.h.

// The whole resolved tree as YAML, which load_config accepts again with the same values.
std::string to_yaml(const Config& config);

// One arm of a comparison: its name, and its overrides as load_config takes them ("key=value").
struct CompareArm {
  std::string name;
  std::vector<std::string> overrides;
};
std::vector<CompareArm> compare_arms(
    const Config& config);  // compare.arms, in the order of the file
std::vector<std::string> compare_overrides(
    const Config& config);  // compare.overrides: for every arm, before its own
std::vector<std::string> compare_start_overrides(const Config& config);  // compare.start_overrides

}  // namespace muoncore::train
