// The changes that a comparison makes to a config, with their positions.
#pragma once

#include <string>
#include <vector>

#include "muoncore/train/config.h"

namespace muoncore::train {

struct Change {
  std::string path;  // dotted, in the tree of the base or the start
  YamlNode value;
};

// {a: {b: 1}, c.d: 2} -> a.b = 1, c.d = 2, in the order of the file.
std::vector<Change> changes_of(const YamlNode& mapping);

}  // namespace muoncore::train
