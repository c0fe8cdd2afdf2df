// The config and its table as text, for people.
#pragma once

#include <string>

#include "muoncore/train/config.h"

namespace muoncore::train {

// to_yaml with a comment beside each value that was set (where), whose default differs from verl's
// (verl's), or whose key verl does not have; then the derived values, as comments. Valid YAML,
// accepted again.
std::string show_config(const Config& config);

// docs/config.md: every key of every tree, where we differ from verl, and what is refused and why.
std::string config_docs();

}  // namespace muoncore::train
