#include "muoncore/models/hf_weights.h"

#include <set>

#include "muoncore/core/check.h"
#include "muoncore/core/json_file.h"
#include "muoncore/models/json_fields.h"

namespace muoncore::models {
namespace {

using std::filesystem::path;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

void add_file(const path& file_path, WeightFiles& weights) {
  weights.files.push_back(std::make_unique<io::SafetensorsFile>(file_path));
  const io::SafetensorsFile* file = weights.files.back().get();
  for (const auto& entry : file->entries()) {
    auto [place, fresh] = weights.tensors.try_emplace(entry.name, WeightFiles::Place{&entry, file});
    check(fresh, "tensor \"{}\" is in both {} and {}", entry.name,
          place->second.file->path().string(), file_path.string());
  }
}

// name -> shard, as the index has it.
std::map<std::string, std::string> weight_map(const nlohmann::json& index, const path& index_path) {
  JsonFields fields(index, index_path.string());
  const nlohmann::json* map = fields.find("weight_map");
  check(map && map->is_object(), "{}: weight_map must be an object", index_path.string());
  std::map<std::string, std::string> out;
  for (const auto& [name, shard] : map->items()) {
    // A shard is a file of this folder: a name with a path in it would reach outside.
    bool plain = shard.is_string() && !shard.get<std::string>().empty() &&
                 path(shard.get<std::string>()).filename() == shard.get<std::string>();
    if (!plain)
      fail("{}: tensor \"{}\" is mapped to {}, not to a file name", index_path.string(), name,
           shard.dump());
    out[name] = shard.get<std::string>();
  }
  return out;
}

void check_against_index(const std::map<std::string, std::string>& map, const WeightFiles& weights,
                         const path& index_path) {
  for (const auto& [name, shard] : map) {
    auto found = weights.tensors.find(name);
    check(found != weights.tensors.end() && found->second.file->path().filename() == shard,
          "{}: tensor \"{}\" is not in {}", index_path.string(), name, shard);
  }
  for (const auto& [name, place] : weights.tensors)
    check(map.contains(name), "{}: tensor \"{}\" of {} is not in the index", index_path.string(),
          name, place.file->path().filename().string());
}

void check_total_size(const nlohmann::json& index, const WeightFiles& weights,
                      const path& index_path) {
  JsonFields fields(index, index_path.string());
  const nlohmann::json* metadata = fields.find("metadata");
  if (!metadata) return;
  auto said =
      JsonFields(*metadata, index_path.string() + ": metadata").optional_integer("total_size");
  int64_t found = 0;
  for (const auto& [name, place] : weights.tensors)
    found += static_cast<int64_t>(place.entry->bytes.size());
  check(!said || *said == found, "{}: total_size is {}, but the shards hold {} bytes of tensors",
        index_path.string(), said.value_or(0), found);
}

}  // namespace

WeightFiles open_weights(const path& folder) {
  bool single = std::filesystem::exists(folder / kSingle);
  bool sharded = std::filesystem::exists(folder / kIndex);
  check(single || sharded, "{}: no weights: neither {} nor {} is there", folder.string(), kSingle,
        kIndex);
  check(!(single && sharded), "{}: both {} and {} are there; which are the weights?",
        folder.string(), kSingle, kIndex);
  WeightFiles weights;
  if (single) {
    add_file(folder / kSingle, weights);
    return weights;
  }
  path index_path = folder / kIndex;
  nlohmann::json index = read_json(index_path);
  auto map = weight_map(index, index_path);
  std::set<std::string> shards;
  for (const auto& [name, shard] : map) shards.insert(shard);
  for (const auto& shard : shards) {
    check(std::filesystem::exists(folder / shard), "{}: shard {} is missing", index_path.string(),
          shard);
    add_file(folder / shard, weights);
  }
  check_against_index(map, weights, index_path);
  check_total_size(index, weights, index_path);
  return weights;
}

}  // namespace muoncore::models
