#include "muoncore/data/special_ids.h"

#include <algorithm>

#include "muoncore/core/check.h"
#include "muoncore/data/json_node.h"

namespace muoncore::data {
namespace {

using TokenId = std::function<std::optional<int64_t>(const std::string&)>;

std::optional<int64_t> named_token(const JsonNode& config, const char* key,
                                   const TokenId& token_id) {
  std::optional<JsonNode> node = config.find(key);
  if (!node) return std::nullopt;
  std::string token = node->value().is_object() ? node->at("content").text() : node->text();
  std::optional<int64_t> id = token_id(token);
  if (!id) node->refuse("tokenizer.json has no such token");
  return id;
}

std::vector<int64_t> id_or_list(const JsonNode& node) {
  std::vector<int64_t> ids;
  if (node.value().is_array())
    for (const JsonNode& item : node.items()) ids.push_back(item.integer());
  else
    ids.push_back(node.integer());
  for (int64_t id : ids)
    if (id < 0) node.refuse("an id is not negative");
  return ids;
}

// The first of the two files that has the key.
std::vector<int64_t> eos_ids(const std::filesystem::path& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    std::filesystem::path path = folder / name;
    if (!std::filesystem::exists(path)) continue;
    nlohmann::json json = parse_json(read_file(path), path.string());
    if (auto node = JsonNode(json, path.string()).find("eos_token_id")) return id_or_list(*node);
  }
  return {};
}

}  // namespace

SpecialIds read_special_ids(const std::filesystem::path& folder, const TokenId& token_id) {
  SpecialIds special;
  special.stop = eos_ids(folder);
  std::filesystem::path path = folder / "tokenizer_config.json";
  if (std::filesystem::exists(path)) {
    nlohmann::json json = parse_json(read_file(path), path.string());
    JsonNode config(json, path.string());
    special.bos = named_token(config, "bos_token", token_id);
    special.eos = named_token(config, "eos_token", token_id);
    special.pad = named_token(config, "pad_token", token_id);
  }
  if (!special.eos && !special.stop.empty()) special.eos = special.stop.front();
  if (special.eos) special.stop.push_back(*special.eos);
  std::sort(special.stop.begin(), special.stop.end());
  special.stop.erase(std::unique(special.stop.begin(), special.stop.end()), special.stop.end());
  return special;
}

}  // namespace muoncore::data
