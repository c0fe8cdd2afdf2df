#include "muoncore/io/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "muoncore/core/check.h"

namespace muoncore::io {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr int kMaxDepth = 4;  // header, entry, shape; deeper is no safetensors file

struct Placed {  // an entry with its offsets, before they are known to be sound
  SafetensorsEntry entry;
  uint64_t begin = 0, end = 0;
};

uint64_t header_length(std::span<const std::byte> file, std::string_view label) {
  check(file.size() >= kLengthBytes,
        "{}: not a safetensors file: {} bytes, shorter than the 8-byte header length", label,
        file.size());
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint64_t>(file[i]);
  check(length <= kMaxHeader, "{}: header length {} is above the format's limit of {}", label,
        length, kMaxHeader);
  check(length <= file.size() - kLengthBytes,
        "{}: header length {} goes beyond the end of the file ({} bytes): truncated?", label,
        length, file.size());
  return length;
}

// The library keeps the last of equal keys and stops at a NUL; both hide what another reader would
// see.
json parse_header(std::string_view text, std::string_view label) {
  check(text.starts_with('{'), "{}: the safetensors header does not start with '{{'", label);
  check(text.find('\0') == std::string_view::npos, "{}: the safetensors header contains a NUL",
        label);
  std::vector<std::set<std::string>> keys;
  auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    check(depth <= kMaxDepth, "{}: the safetensors header nests deeper than the format does",
          label);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key)
      check(keys.back().insert(parsed.get<std::string>()).second,
            "{}: duplicate key \"{}\" in the safetensors header", label,
            parsed.get_ref<const std::string&>());
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& e) {
    fail("{}: the safetensors header is not valid JSON: {}", label, e.what());
  }
}

SafetensorsMetadata parse_metadata(const json& value, std::string_view label) {
  check(value.is_object(), "{}: __metadata__ must be an object of strings, found {}", label,
        value.type_name());
  SafetensorsMetadata metadata;
  for (const auto& [key, text] : value.items()) {
    check(text.is_string(), "{}: __metadata__ \"{}\" must be a string, found {}", label, key,
          text.type_name());
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

const json& field(const json& entry, const char* key, std::string_view name,
                  std::string_view label) {
  auto found = entry.find(key);
  check(found != entry.end(), "{}: tensor \"{}\" has no {}", label, name, key);
  return *found;
}

// A whole number in [0, 2^63): what a shape or an offset may be.
uint64_t whole(const json& value, const char* what, std::string_view name, std::string_view label) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMost)
    fail("{}: tensor \"{}\" has {} {}, not a whole number below 2^63", label, name, what,
         value.dump());
  return value.get<uint64_t>();
}

Placed parse_entry(const std::string& name, const json& value, std::string_view label) {
  check(value.is_object(), "{}: tensor \"{}\" must be an object, found {}", label, name,
        value.type_name());
  Placed placed;
  placed.entry.name = name;
  const json& dtype = field(value, "dtype", name, label);
  auto known = dtype.is_string() ? dtype_named(dtype.get_ref<const std::string&>()) : std::nullopt;
  check(known.has_value(), "{}: tensor \"{}\" has the unknown dtype {}", label, name, dtype.dump());
  placed.entry.dtype = *known;
  const json& shape = field(value, "shape", name, label);
  check(shape.is_array(), "{}: tensor \"{}\" has shape {}, not a list", label, name, shape.dump());
  for (const json& size : shape)
    placed.entry.shape.push_back(static_cast<int64_t>(whole(size, "a dimension", name, label)));
  const json& offsets = field(value, "data_offsets", name, label);
  check(offsets.is_array() && offsets.size() == 2,
        "{}: tensor \"{}\" has data_offsets {}, not [begin, end]", label, name, offsets.dump());
  placed.begin = whole(offsets[0], "an offset", name, label);
  placed.end = whole(offsets[1], "an offset", name, label);
  return placed;
}

uint64_t byte_size(const SafetensorsEntry& entry, std::string_view label) {
  uint64_t bits = static_cast<uint64_t>(bits_of(entry.dtype));
  for (int64_t size : entry.shape)
    check(!__builtin_mul_overflow(bits, static_cast<uint64_t>(size), &bits),
          "{}: tensor \"{}\" has shape [{}], whose size overflows", label, entry.name,
          fmt::join(entry.shape, ", "));
  check(bits % 8 == 0, "{}: tensor \"{}\" ({} [{}]) does not fill whole bytes", label, entry.name,
        to_string(entry.dtype), fmt::join(entry.shape, ", "));
  return bits / 8;
}

// The tensors tile the data: the first begins at 0, each begins where the one before ends, the last
// ends the file.
void check_tiling(const std::vector<Placed>& placed, uint64_t data_bytes, std::string_view label) {
  uint64_t expected = 0;
  const char* before = "the start of the data";
  for (const Placed& p : placed) {
    const std::string& name = p.entry.name;
    check(p.begin <= expected,
          "{}: {} bytes between {} (ending at {}) and tensor \"{}\" [{}, {}] belong to no tensor",
          label, p.begin - expected, before, expected, name, p.begin, p.end);
    check(p.begin == expected, "{}: tensor \"{}\" [{}, {}] overlaps {}, which ends at {}", label,
          name, p.begin, p.end, before, expected);
    check(p.end >= p.begin, "{}: tensor \"{}\" has data_offsets [{}, {}] that run backwards", label,
          name, p.begin, p.end);
    uint64_t bytes = byte_size(p.entry, label);
    check(p.end - p.begin == bytes,
          "{}: tensor \"{}\" has data_offsets [{}, {}], {} bytes, but {} [{}] takes {} bytes",
          label, name, p.begin, p.end, p.end - p.begin, to_string(p.entry.dtype),
          fmt::join(p.entry.shape, ", "), bytes);
    check(p.end <= data_bytes,
          "{}: tensor \"{}\" [{}, {}] goes beyond the end of the data ({} bytes): truncated?",
          label, name, p.begin, p.end, data_bytes);
    expected = p.end;
    before = name.c_str();
  }
  check(expected == data_bytes, "{}: {} bytes after {} (ending at {}) belong to no tensor", label,
        data_bytes - expected, before, expected);
}

}  // namespace

SafetensorsContents parse_safetensors(std::span<const std::byte> file, std::string_view label) {
  uint64_t length = header_length(file, label);
  std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  json header = parse_header(text, label);
  SafetensorsContents contents;
  std::vector<Placed> placed;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__")
      contents.metadata = parse_metadata(value, label);
    else
      placed.push_back(parse_entry(name, value, label));
  }
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.begin, a.end, a.entry.name) < std::tie(b.begin, b.end, b.entry.name);
  });
  auto data = file.subspan(kLengthBytes + length);
  check_tiling(placed, data.size(), label);
  for (Placed& p : placed) {
    p.entry.bytes = data.subspan(p.begin, p.end - p.begin);
    contents.entries.push_back(std::move(p.entry));
  }
  return contents;
}

}  // namespace muoncore::io
