#include "muoncore/io/atomic_folder.h"

#include <unistd.h>

#include "muoncore/core/check.h"
#include "muoncore/io/atomic_file.h"

namespace muoncore::io {

namespace fs = std::filesystem;

namespace {

fs::path without_trailing_slash(const fs::path& folder) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

AtomicFolder::AtomicFolder(const fs::path& target)
    : target_(without_trailing_slash(target)),
      building_(target_.parent_path() /
                fmt::format(".{}.tmp-{}", target_.filename().string(), ::getpid())) {
  std::error_code error;
  fs::remove_all(building_, error);  // of a process that had our number and was killed
  fs::create_directories(building_, error);
  check(!error, "cannot make the folder {}: {}", building_.string(), error.message());
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  fs::remove_all(building_, ignored);
}

void AtomicFolder::commit() {
  std::error_code error;
  sync_folder(building_);
  fs::rename(building_, target_, error);
  check(!error, "cannot rename {} to {}: {}", building_.string(), target_.string(),
        error.message());
  sync_folder(target_.parent_path());
}

}  // namespace muoncore::io
