#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <tuple>

#include "muoncore/core/check.h"
#include "muoncore/io/atomic_file.h"
#include "muoncore/io/safetensors.h"

namespace muoncore::io {
namespace {

void check_entry(const SafetensorsEntry& entry, const std::string& path) {
  check(entry.name != "__metadata__",
        "cannot write {}: a tensor may not be called \"__metadata__\"", path);
  int64_t bits = bits_of(entry.dtype);
  for (int64_t size : entry.shape) bits *= size;
  check(bits == static_cast<int64_t>(entry.bytes.size()) * 8,
        "cannot write {}: tensor \"{}\" ({} [{}]) has {} bytes", path, entry.name,
        to_string(entry.dtype), fmt::join(entry.shape, ", "), entry.bytes.size());
}

std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail("cannot write a safetensors file: a name is not UTF-8: {}", text);
  }
}

// JSON by hand, because the keys stand in the order of the data and the library would sort them.
std::string header_of(const std::vector<SafetensorsEntry>& entries,
                      const SafetensorsMetadata& metadata) {
  std::string header = "{";
  for (const auto& [key, value] : metadata)
    header += fmt::format("{}{}:{}", header.size() > 1 ? "," : "\"__metadata__\":{", quoted(key),
                          quoted(value));
  if (!metadata.empty()) header += "}";
  size_t offset = 0;
  for (const auto& entry : entries) {
    size_t end = offset + entry.bytes.size();
    header += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.size() > 1 ? "," : "", quoted(entry.name), to_string(entry.dtype),
                          fmt::join(entry.shape, ","), offset, end);
    offset = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                       const SafetensorsMetadata& metadata) {
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
            });
  for (const auto& entry : entries) check_entry(entry, path.string());
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  auto twice = std::adjacent_find(names.begin(), names.end());
  check(twice == names.end(), "cannot write {}: two tensors are called \"{}\"", path.string(),
        twice == names.end() ? "" : *twice);

  std::string header = header_of(entries, metadata);
  std::array<std::byte, 8> length{};
  for (int i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(header.size() >> (8 * i));
  AtomicFile file(path);
  file.write(length);
  file.write(header);
  for (const auto& entry : entries) file.write(entry.bytes);
  file.commit();
}

}  // namespace muoncore::io
