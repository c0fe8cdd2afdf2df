#include "muoncore/io/jsonl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "muoncore/core/check.h"

namespace muoncore::io {

JsonlWriter::JsonlWriter(const std::filesystem::path& path) : path_(path) {
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  check(file_ >= 0, "cannot open {} for writing: {}", path.string(), std::strerror(errno));
}

JsonlWriter::~JsonlWriter() { ::close(file_); }

void JsonlWriter::write(const nlohmann::ordered_json& object) {
  const std::string line = object.dump() + "\n";
  struct stat before {};
  const int examined = ::fstat(file_, &before);
  check(examined == 0, "cannot examine {}: {}", path_.string(), std::strerror(errno));
  ssize_t written = 0;
  do {
    written = ::write(file_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return;
  const int error = written < 0 ? errno : ENOSPC;
  const bool cut = S_ISREG(before.st_mode) && ::ftruncate(file_, before.st_size) == 0;
  fail("cannot write to {}: {}{}", path_.string(), std::strerror(error),
       cut || written <= 0 ? "" : " (its last line is incomplete)");
}

}  // namespace muoncore::io
