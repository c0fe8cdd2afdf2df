#include "muoncore/train/run_dir.h"

#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/io/atomic_file.h"

namespace muoncore::train {

namespace fs = std::filesystem;

void write_file_atomically(const fs::path& file, std::string_view text) {
  io::AtomicFile out(file);
  out.write(text);
  out.commit();
}

RunDir::RunDir(fs::path path) : path_(std::move(path)) {}

RunDir RunDir::create(const fs::path& path) {
  check(!path.empty(), "trainer.default_local_dir is empty: name the folder of the run");
  std::error_code error;
  const fs::file_status there = fs::status(path, error);
  if (fs::exists(there)) {
    check(fs::is_directory(there), "trainer.default_local_dir: {} exists and is not a folder",
          path.string());
    const fs::directory_iterator entries(path, error);
    check(!error, "trainer.default_local_dir: cannot read {}: {}", path.string(), error.message());
    check(
        entries == fs::directory_iterator(),
        "trainer.default_local_dir: the folder {} is not empty (it holds {}): name a new folder "
        "with trainer.default_local_dir=..., or remove this one",
        path.string(),
        entries == fs::directory_iterator() ? std::string() : entries->path().filename().string());
    return RunDir(path);
  }
  fs::create_directories(path, error);
  check(!error, "trainer.default_local_dir: cannot make the folder {}: {}", path.string(),
        error.message());
  return RunDir(path);
}

fs::path RunDir::model_folder(int64_t step) const {
  return path_ / fmt::format("global_step_{}", step) / "actor" / "huggingface";
}

void RunDir::set_latest_checkpoint(int64_t step) const {
  write_file_atomically(path_ / "latest_checkpointed_iteration.txt", std::to_string(step));
}

}  // namespace muoncore::train
