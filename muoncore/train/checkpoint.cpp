#include "muoncore/train/checkpoint.h"

#include <fmt/format.h>

#include "muoncore/core/check.h"
#include "muoncore/io/atomic_file.h"
#include "muoncore/models/hf.h"

namespace muoncore::train {

namespace fs = std::filesystem;

namespace {

// Removes a folder that was not finished, unless it was renamed away.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {
    std::error_code error;
    fs::remove_all(path_, error);
    fs::create_directories(path_, error);
    check(!error, "cannot make the folder {}: {}", path_.string(), error.message());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  void rename_to(const fs::path& name) {
    std::error_code error;
    fs::rename(path_, name, error);
    check(!error, "cannot rename {} to {}: {}", path_.string(), name.string(), error.message());
    io::sync_folder(name.parent_path());
  }

 private:
  fs::path path_;
};

}  // namespace

void save_model(const RunDir& run, int64_t step, const models::CausalLM& model,
                const data::Tokenizer& tokenizer) {
  const std::string name = fmt::format("global_step_{}", step);
  TemporaryFolder building(run.path() / fmt::format(".{}.tmp", name));
  const fs::path root = run.path() / fmt::format(".{}.tmp", name);
  const fs::path folder = root / fs::relative(run.model_folder(step), run.path() / name);
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  check(!error, "cannot make the folder {}: {}", folder.parent_path().string(), error.message());
  models::save_hf(model, folder);
  tokenizer.save(folder);
  io::sync_folder(folder);
  io::sync_folder(folder.parent_path());
  io::sync_folder(root);
  building.rename_to(run.path() / name);
  run.set_latest_checkpoint(step);
}

}  // namespace muoncore::train
