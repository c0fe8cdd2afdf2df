#include "muoncore/train/checkpoint.h"

#include <fmt/format.h>

#include "muoncore/io/atomic_file.h"
#include "muoncore/io/atomic_folder.h"
#include "muoncore/models/hf.h"

namespace muoncore::train {

namespace fs = std::filesystem;

void save_model(const RunDir& run, int64_t step, const models::CausalLM& model,
                const data::Tokenizer& tokenizer) {
  const fs::path target = run.path() / fmt::format("global_step_{}", step);
  io::AtomicFolder building(target);
  const fs::path folder = building.building() / fs::relative(run.model_folder(step), target);
  models::save_hf(model, folder);
  tokenizer.save(folder);
  io::sync_folder(folder);
  io::sync_folder(folder.parent_path());
  building.commit();
  run.set_latest_checkpoint(step);
}

}  // namespace muoncore::train
