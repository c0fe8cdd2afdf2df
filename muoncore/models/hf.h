// Models as Hugging Face folders: config.json, and model.safetensors or shards with
// model.safetensors.index.json.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "muoncore/models/causal_lm.h"

namespace muoncore::models {

struct LoadedModel {
  ModelConfig config;
  std::shared_ptr<CausalLM> model;
};

// Hugging Face's name of a model's dtype ("float32"). Throws Error for one that no folder can have.
const char* dtype_name(at::ScalarType dtype);

// Reads a folder; weights of other floating types are cast to `dtype`. Throws one Error that names
// folder, file and tensor on: no config.json or weights, a config that config_from_json refuses, a
// shard that is missing or holds other tensors than the index says, a tensor that is missing,
// unexpected, of another shape, or not floating.
LoadedModel load_hf(const std::filesystem::path& folder, at::ScalarType dtype = at::kFloat,
                    at::Device device = at::kCPU);

// Writes config.json, model.safetensors and copies of `extra_files` (say the tokenizer's) to
// `folder`, which must be absent or empty: into a temporary folder beside it, synced, then renamed.
// Throws Error and leaves nothing otherwise.
void save_hf(const CausalLM& model, const std::filesystem::path& folder,
             const std::vector<std::filesystem::path>& extra_files = {});

}  // namespace muoncore::models
