#include "muoncore/models/hf.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "muoncore/core/check.h"
#include "muoncore/core/json_file.h"
#include "muoncore/io/atomic_file.h"
#include "muoncore/io/atomic_folder.h"
#include "muoncore/models/hf_weights.h"
#include "muoncore/models/json_fields.h"
#include "muoncore/models/tensor_io.h"

namespace muoncore::models {
namespace {

using std::filesystem::path;

// What transformers' generation takes from generation_config.json in place of config.json.
void read_generation_config(const path& file, ModelConfig& config) {
  if (!std::filesystem::exists(file)) return;
  nlohmann::json json = read_json(file);
  JsonFields fields(json, file.string());
  if (fields.has("eos_token_id")) config.eos_token_ids = fields.integers("eos_token_id");
  if (auto bos = fields.optional_integer("bos_token_id")) config.bos_token_id = bos;
  if (auto pad = fields.optional_integer("pad_token_id")) config.pad_token_id = pad;
}

void copy_weight(const WeightFiles::Place& place, at::Tensor& param) {
  const io::SafetensorsEntry& entry = *place.entry;
  std::string file = place.file->path().string();
  check(entry.shape == param.sizes().vec(),
        "{}: tensor \"{}\" has shape [{}], the config asks for [{}]", file, entry.name,
        fmt::join(entry.shape, ", "), fmt::join(param.sizes(), ", "));
  at::ScalarType type = scalar_type(entry.dtype);
  bool plain =
      type == at::kFloat || type == at::kBFloat16 || type == at::kHalf || type == at::kDouble;
  check(plain, "{}: tensor \"{}\" is {}; weights must be F32, BF16, F16 or F64", file, entry.name,
        io::to_string(entry.dtype));
  param.copy_(to_tensor(entry));
}

// Tied checkpoints may carry the head nevertheless; it must then be the embedding.
void drop_tied_head(WeightFiles& weights, const path& folder) {
  auto head = weights.tensors.find("lm_head.weight");
  auto embedding = weights.tensors.find("model.embed_tokens.weight");
  if (head == weights.tensors.end() || embedding == weights.tensors.end()) return;
  const auto &a = head->second.entry->bytes, &b = embedding->second.entry->bytes;
  check(std::equal(a.begin(), a.end(), b.begin(), b.end()),
        "{}: tie_word_embeddings is true, but lm_head.weight differs from "
        "model.embed_tokens.weight",
        folder.string());
  weights.tensors.erase(head);
}

void write_file(const path& file, std::string_view text) {
  io::AtomicFile out(file);
  out.write(text);
  out.commit();
}

void copy_extra(const path& from, const path& to) {
  io::AtomicFile out(to);
  std::ifstream in(from, std::ios::binary);
  check(in.good(), "cannot read {}", from.string());
  std::vector<char> buffer(1 << 20);
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    out.write(std::string_view(buffer.data(), static_cast<size_t>(in.gcount())));
  }
  check(in.eof(), "cannot read {}", from.string());
  out.commit();
}

}  // namespace

const char* dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kDouble:
      return "float64";
    default:
      fail("a model cannot be saved in {}", c10::toString(dtype));
  }
}

LoadedModel load_hf(const path& folder, at::ScalarType dtype, at::Device device) {
  check(std::filesystem::is_directory(folder), "{}: no such folder", folder.string());
  path config_path = folder / "config.json";
  check(std::filesystem::exists(config_path), "{}: no config.json: not a Hugging Face model folder",
        folder.string());
  ModelConfig config = config_from_json(read_json(config_path), config_path.string());
  read_generation_config(folder / "generation_config.json", config);
  WeightFiles weights = open_weights(folder);
  if (config.tie_word_embeddings) drop_tied_head(weights, folder);

  c10::NoGradGuard no_grad;
  LoadedModel loaded{config, std::make_shared<CausalLM>(config, dtype, device)};
  for (auto& [name, param] : loaded.model->named_params()) {
    auto found = weights.tensors.find(name);
    check(found != weights.tensors.end(), "{}: tensor \"{}\" is missing from the weights",
          folder.string(), name);
    copy_weight(found->second, param);
    weights.tensors.erase(found);
  }
  if (!weights.tensors.empty()) {
    const auto& [name, place] = *weights.tensors.begin();
    fail("{}: tensor \"{}\" is not part of a {} model of this config ({} unexpected in all)",
         place.file->path().string(), name, config.model_type, weights.tensors.size());
  }
  return loaded;
}

void save_hf(const CausalLM& model, const path& folder, const std::vector<path>& extra_files) {
  namespace fs = std::filesystem;
  check(!fs::exists(folder) || (fs::is_directory(folder) && fs::is_empty(folder)),
        "cannot save a model to {}: it exists and is not an empty folder", folder.string());
  io::AtomicFolder saved(folder);
  ModelConfig config = model.config();
  config.dtype = dtype_name(model.dtype());
  save_tensors(saved.building() / "model.safetensors", model.named_params());
  write_file(saved.building() / "config.json", config_to_json(config).dump(2) + "\n");
  for (const path& file : extra_files) copy_extra(file, saved.building() / file.filename());
  saved.commit();
}

}  // namespace muoncore::models
