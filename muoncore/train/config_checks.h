// Checks across keys: what each key may be alone is in the tables. Every one throws Error with the
// position of a key at fault, its name and its value, and the other key's name.
#pragma once

#include <string>

#include "muoncore/train/config.h"

namespace muoncore::train {

void check_optimizer(const Config& config);
void check_trainer(const Config& config);
void check_model(const Config& config);
void check_data(const Config& config);
void check_grpo(const Config& config);
// Loads the base with every arm, and the start; with `files` also what they name must exist.
void check_compare(const Config& config, bool files = false);

// A tree (with its overrides applied) resolved and checked, by all of the above that its kind has.
Config checked_config(ConfigKind kind, const YamlNode& tree);

// "FILE:LINE: key 'path': value V: <complaint>"
[[noreturn]] void fail_at(const Config& config, const std::string& path,
                          const std::string& complaint);

}  // namespace muoncore::train
