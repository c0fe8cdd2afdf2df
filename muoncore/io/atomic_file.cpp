#include "muoncore/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "muoncore/core/check.h"

namespace muoncore::io {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  check(path_.has_filename(), "cannot write '{}': it names no file", path_.string());
  std::string pattern =
      fmt::format("{}/.{}.tmp-XXXXXX", folder_of(path_).string(), path_.filename().string());
  descriptor_ = ::mkostemp(pattern.data(), O_CLOEXEC);
  check(descriptor_ >= 0, "cannot write {}: {}", path_.string(), std::strerror(errno));
  temporary_ = pattern;
  ::fchmod(descriptor_, 0644);  // mkostemp makes files that only the owner may read
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    check(n > 0, "cannot write {}: {}", path_.string(), std::strerror(n < 0 ? errno : ENOSPC));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  int synced = ::fsync(descriptor_);
  check(synced == 0, "cannot write {}: {}", path_.string(), std::strerror(errno));
  int closed = ::close(descriptor_);
  descriptor_ = -1;
  check(closed == 0, "cannot write {}: {}", path_.string(), std::strerror(errno));
  int renamed = ::rename(temporary_.c_str(), path_.c_str());
  check(renamed == 0, "cannot write {}: {}", path_.string(), std::strerror(errno));
  temporary_.clear();
  sync_folder(folder_of(path_));
}

void sync_folder(const std::filesystem::path& folder) {
  int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check(descriptor >= 0, "cannot sync folder {}: {}", folder.string(), std::strerror(errno));
  int rc = ::fsync(descriptor);
  int reason = errno;
  ::close(descriptor);
  // Some file systems cannot sync a folder and say so with EINVAL: there is nothing more to be had
  // from them.
  check(rc == 0 || reason == EINVAL, "cannot sync folder {}: {}", folder.string(),
        std::strerror(reason));
}

}  // namespace muoncore::io
