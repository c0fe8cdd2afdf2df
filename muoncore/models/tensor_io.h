// Between safetensors entries (bytes) and tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "muoncore/io/safetensors.h"

namespace muoncore::models {

// Throw Error for a type that the other side has not.
at::ScalarType scalar_type(io::Dtype dtype);
io::Dtype dtype_of(at::ScalarType type);

// A CPU tensor of its own with the entry's values.
at::Tensor to_tensor(const io::SafetensorsEntry& entry);

// All tensors of a file, by offset; or writes them (any device, strided or not) as
// write_safetensors does.
std::vector<std::pair<std::string, at::Tensor>> load_tensors(const std::filesystem::path& path);
void save_tensors(const std::filesystem::path& path,
                  const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                  const io::SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace muoncore::models
