#include "muoncore/core/json_file.h"

#include <fstream>

#include "muoncore/core/check.h"

namespace muoncore {

nlohmann::json read_json(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  check(stream.good(), "cannot read {}", file.string());
  try {
    return nlohmann::json::parse(stream);
  } catch (const nlohmann::json::exception& e) {
    fail("{}: not valid JSON: {}", file.string(), e.what());
  }
}

}  // namespace muoncore
