// A folder that appears under its name only when it is complete and on the disk.
#pragma once

#include <filesystem>

namespace muoncore::io {

// Files go into building(), an empty folder beside the target; each must be synced by who writes it
// (AtomicFile does). commit() renames it to the target (absent, or an empty folder) and syncs the
// folder above. Destroyed without commit(), it leaves nothing behind. Folders above the target are
// made. Every failure throws Error with the path and the system's reason.
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::filesystem::path& target);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& building() const { return building_; }
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path building_;
};

// Removes a folder and all in it so that it is gone from its name at once: a crash leaves at most a
// hidden folder beside it (".<name>.tmp-<process>"). Throws Error with the path and the reason.
void remove_folder(const std::filesystem::path& folder);

}  // namespace muoncore::io
