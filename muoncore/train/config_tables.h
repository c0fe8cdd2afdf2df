// The tables of options, one per subtree of the config. `prefix` is where the subtree hangs, since
// grpo and sft hang the same optimizer, engine and model at different places.
#pragma once

#include <string>

#include "muoncore/train/config.h"
#include "muoncore/train/config_rows.h"

namespace muoncore::train {

// verl's trainer/config/optim/megatron.yaml and McoreOptimizerConfig; `lr`: verl's default at that
// place.
Options optim_options(const std::string& prefix, double lr);
Refusals optim_refusals(const std::string& prefix);

// verl's McoreEngineConfig (actor.megatron, engine).
Options engine_options(const std::string& prefix);
Refusals engine_refusals(const std::string& prefix);

Options model_options(
    const std::string& prefix);  // verl's hf_model.yaml, and a model without weights
Refusals model_refusals(const std::string& prefix);

Options checkpoint_options(const std::string& prefix);
Refusals checkpoint_refusals(const std::string& prefix);

Options
actor_options();  // actor_rollout_ref.{actor, rollout, ref} but for optim, megatron, checkpoint
Refusals actor_refusals();
Options algorithm_options();
Refusals algorithm_refusals();

Options data_options(ConfigKind kind);
Refusals data_refusals(ConfigKind kind);
Options trainer_options(ConfigKind kind);
Refusals trainer_refusals(ConfigKind kind);

Options compare_options();

// The whole table of a command, made once.
const OptionTable& option_table(ConfigKind kind);

// Subtree prefixes of a kind.
std::string optim_prefix(ConfigKind kind);
std::string model_prefix(ConfigKind kind);
std::string engine_prefix(ConfigKind kind);
std::string checkpoint_prefix(ConfigKind kind);

}  // namespace muoncore::train
