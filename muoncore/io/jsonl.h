// JSON lines: one object per line, every number with all its digits (shortest text that reads back
// to the same double).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace muoncore::io {

// Appends lines to a file. Each line goes out in one write() and is complete when write() returns,
// so a reader never sees half a line of a living run, and a crash loses none that was written. JSON
// knows no NaN and no infinity: such values are written as null.
class JsonlWriter {
 public:
  // Makes the file, or appends to it. Throws Error when it cannot be opened.
  explicit JsonlWriter(const std::filesystem::path& path);
  ~JsonlWriter();
  JsonlWriter(const JsonlWriter&) = delete;
  JsonlWriter& operator=(const JsonlWriter&) = delete;

  // Throws Error when the line could not be written whole (a full disk); the file then ends where
  // it ended before.
  void write(const nlohmann::ordered_json& object);

 private:
  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace muoncore::io
