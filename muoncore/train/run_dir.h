// The folder of a run, `trainer.default_local_dir`: config.yaml, resolved.json, metrics.jsonl,
// tensorboard/, logs/, global_step_<N>/ and latest_checkpointed_iteration.txt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace muoncore::train {

// Writes a whole file under a temporary name, syncs and renames it. Throws Error.
void write_file_atomically(const std::filesystem::path& file, std::string_view text);

class RunDir {
 public:
  // Makes the folder (and those above it). Throws Error when something that is not an empty folder
  // is there: a run never mixes its files with another's.
  static RunDir create(const std::filesystem::path& path);
  // The folder of a run that another rank has made.
  static RunDir join(const std::filesystem::path& path) { return RunDir(path); }

  const std::filesystem::path& path() const { return path_; }

  // <path>/global_step_<N>/actor/huggingface
  std::filesystem::path model_folder(int64_t step) const;

  // Records `step` as the latest complete checkpoint, after all its files are on the disk.
  void set_latest_checkpoint(int64_t step) const;

 private:
  explicit RunDir(std::filesystem::path path);
  std::filesystem::path path_;
};

}  // namespace muoncore::train
