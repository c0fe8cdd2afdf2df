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

fs::path hidden_beside(const fs::path& folder) {
  return folder.parent_path() / fmt::format(".{}.tmp-{}", folder.filename().string(), ::getpid());
}

}  // namespace

AtomicFolder::AtomicFolder(const fs::path& target)
    : target_(without_trailing_slash(target)), building_(hidden_beside(target_)) {
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

void remove_folder(const fs::path& folder) {
  const fs::path target = without_trailing_slash(folder);
  const fs::path hidden = hidden_beside(target);
  std::error_code error;
  fs::rename(target, hidden, error);
  if (!error) fs::remove_all(hidden, error);
  check(!error, "cannot remove the folder {}: {}", target.string(), error.message());
}

}  // namespace muoncore::io
