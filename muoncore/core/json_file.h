// JSON files, read whole.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace muoncore {

// Throws Error with the file, and the position of the fault where it is not valid JSON.
nlohmann::json read_json(const std::filesystem::path& file);

}  // namespace muoncore
