// The weights of a Hugging Face folder, one file or many, as one set of named entries.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muoncore/io/safetensors.h"

namespace muoncore::models {

struct WeightFiles {
  std::vector<std::unique_ptr<io::SafetensorsFile>> files;
  struct Place {
    const io::SafetensorsEntry* entry;
    const io::SafetensorsFile* file;
  };
  std::map<std::string, Place> tensors;
};

// Reads model.safetensors, or the shards of model.safetensors.index.json. Throws Error when there
// is neither, both, or the shards and the index differ in any name or in the total size.
WeightFiles open_weights(const std::filesystem::path& folder);

}  // namespace muoncore::models
