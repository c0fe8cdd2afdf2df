// The safetensors format: named tensors in one file, read through mmap and checked before anything
// is used. Source: the format's description and its Rust reader (huggingface/safetensors); facts in
// reference/rl.md 4.1.
//
//   8 bytes: header length N, little-endian | N bytes: JSON object, may end in spaces | data,
//   little-endian, row-major
//
// No ATen here: an entry is a name, a type, a shape and a span of bytes (models/tensor_io.h makes
// tensors of them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muoncore::io {

// In the order of the Rust crate (alignment ascending): it decides the order of tensors in a file.
// clang-format off
enum class Dtype {
  kBool, kF4, kF6E2M3, kF6E3M2, kU8, kI8, kF8E5M2, kF8E4M3, kF8E8M0, kF8E4M3Fnuz, kF8E5M2Fnuz,
  kI16, kU16, kF16, kBF16, kI32, kU32, kF32, kC64, kF64, kI64, kU64
};
// clang-format on

const char* to_string(Dtype dtype);  // the format's name: "BF16"
int64_t bits_of(Dtype dtype);        // bits of one element: 4 to 64
std::optional<Dtype> dtype_named(std::string_view name);

struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;        // {} is a scalar; a dimension may be 0
  std::span<const std::byte> bytes;  // not necessarily aligned in a foreign file
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsContents {
  std::vector<SafetensorsEntry> entries;  // by offset
  SafetensorsMetadata metadata;
};

// Parses a whole file that lies in memory; the entries' spans point into `file`. `label` names it
// in errors. Throws Error on: a header length beyond the file or 100,000,000; anything but one JSON
// object that starts at once; a duplicate key; metadata that is not string to string; an unknown
// dtype; a shape or offsets that are not whole numbers; a size that overflows or differs from the
// offsets; a first tensor not at 0; a hole, an overlap, or bytes left over at the end.
SafetensorsContents parse_safetensors(std::span<const std::byte> file, std::string_view label);

// A mapped file. The entries' spans live as long as this object.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(
      std::filesystem::path path);  // throws Error as parse_safetensors, and if it cannot be read
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return contents_.entries; }
  const SafetensorsMetadata& metadata() const { return contents_.metadata; }
  const SafetensorsEntry* find(std::string_view name) const;  // nullptr when absent
  const SafetensorsEntry& at(std::string_view name) const;    // throws Error with the nearest name

 private:
  std::filesystem::path path_;
  std::span<const std::byte> mapped_;
  SafetensorsContents contents_;
  std::map<std::string_view, size_t> index_;
};

// Writes `entries` (any order; their bytes are little-endian and row-major) to `path`: byte for
// byte what the Rust writer makes of them. Written to a temporary file in the same folder, synced,
// renamed: on any error (Error with the path and the cause) nothing is left, and a file that was
// there before is untouched.
void write_safetensors(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                       const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace muoncore::io
