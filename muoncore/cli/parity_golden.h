// A folder of golden results: manifest.json and the safetensors files beside it.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "muoncore/core/json_file.h"
#include "muoncore/io/safetensors.h"

namespace muoncore::cli {

class GoldenFolder {
 public:
  explicit GoldenFolder(
      std::filesystem::path folder);  // throws unless it is a manifest of format 1

  // The group's object; throws when the manifest lacks it.
  const nlohmann::json& group(const std::string& name) const;
  bool has_group(const std::string& name) const { return manifest_.at("groups").contains(name); }
  const nlohmann::json& groups() const { return manifest_.at("groups"); }

  at::Tensor tensor(const std::string& file, const std::string& name) const;  // a copy
  const std::filesystem::path& path() const { return folder_; }

 private:
  std::filesystem::path folder_;
  nlohmann::json manifest_;
  mutable std::map<std::string, std::unique_ptr<io::SafetensorsFile>> files_;
};

}  // namespace muoncore::cli
