// What follows from a config: the plain settings of other rooms, and the derived values that a run
// writes down.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "muoncore/optim/optimizer_config.h"
#include "muoncore/train/config.h"

namespace muoncore::train {

// The optimizer's settings, override_optimizer_config applied. `total_training_steps` is the run's
// (-1: not known yet, then a schedule that depends on it is not checked).
optim::OptimizerConfig optimizer_config(const Config& config, int64_t total_training_steps);

// A Hugging Face config.json made of model.config.*; `vocab_size` is used where the config names
// none.
nlohmann::json model_config_json(const Config& config, int64_t vocab_size);

// The value of a seed's key, or trainer.seed where that is null.
int64_t seed_of(const Config& config, const std::string& path);

// Derived values: Muon's factor and where it comes from, scale mode, warm-up and decay steps,
// Adam's settings, seeds.
nlohmann::json resolved_json(const Config& config, int64_t total_training_steps);

}  // namespace muoncore::train
