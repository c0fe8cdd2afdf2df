// A file that appears under its name only when it is complete and on the disk.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace muoncore::io {

// Writes go to a temporary file in the same folder; commit() syncs it, renames it and syncs the
// folder. Destroyed without commit(), or after any error, it leaves nothing behind. Every failure
// (no folder, disk full, ...) throws Error with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

// Syncs a folder, so that names created or renamed in it survive a crash.
void sync_folder(const std::filesystem::path& folder);

}  // namespace muoncore::io
