#include "muoncore/cli/parity_golden.h"

#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/models/tensor_io.h"

namespace muoncore::cli {

GoldenFolder::GoldenFolder(std::filesystem::path folder)
    : folder_(std::move(folder)), manifest_(read_json(folder_ / "manifest.json")) {
  check(manifest_.value("format", 0) == 1, "{}: the manifest must have format 1",
        (folder_ / "manifest.json").string());
  check(manifest_.contains("groups"), "{}: the manifest has no groups",
        (folder_ / "manifest.json").string());
}

const nlohmann::json& GoldenFolder::group(const std::string& name) const {
  check(has_group(name), "{}: the manifest has no group {}", folder_.string(), name);
  return groups().at(name);
}

at::Tensor GoldenFolder::tensor(const std::string& file, const std::string& name) const {
  auto& slot = files_[file];
  if (!slot) slot = std::make_unique<io::SafetensorsFile>(folder_ / file);
  return models::to_tensor(slot->at(name));
}

}  // namespace muoncore::cli
