// What a run is made of, from its config: device, threads, model, tokenizer, task, optimizer.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muoncore/data/task.h"
#include "muoncore/data/tokenizer.h"
#include "muoncore/models/causal_lm.h"
#include "muoncore/optim/chained.h"
#include "muoncore/optim/param_scheduler.h"
#include "muoncore/parallel/wrap.h"
#include "muoncore/train/config.h"
#include "muoncore/train/ranks.h"

namespace muoncore::train {

// auto (cuda where there is one), cpu or cuda. Throws Error, naming `key`, where cuda is asked for
// and absent.
c10::Device device_named(const std::string& name, const std::string& key);
// trainer.device. Several ranks are on the CPU: cuda throws Error, auto is cpu.
c10::Device resolve_device(const Config& config, const Ranks& ranks);

// The cores that this process may run on.
int usable_cores();

// trainer.threads, or as many as torch takes by itself (all cores, or OMP_NUM_THREADS), or, with
// several ranks on this machine, its cores divided by them (at least 1); sets them and returns the
// number.
int set_threads(const Config& config, const Ranks& ranks);

// The dtype key of the engine. Throws Error on float16.
at::ScalarType resolve_dtype(const Config& config);

struct ModelSetup {
  std::shared_ptr<models::CausalLM> model;
  std::shared_ptr<const data::Tokenizer> tokenizer;
  std::string source;  // the folder, or "random weights (seed N)"
};

// The model's subtree: `path` (weights of a Hugging Face folder), `hf_config_path` (a config.json,
// random weights) or `config` (random weights). Throws Error: unreadable folder, a tokenizer of
// another vocabulary, a prompt and response that the model has no positions for.
ModelSetup set_up_model(const Config& config, const c10::Device& device);

// A frozen copy, the reference of a KL penalty.
std::shared_ptr<models::CausalLM> frozen_copy(const models::CausalLM& model);

// data.*: the task of a grpo run, or of an sft run whose data.task is generated.
std::shared_ptr<const data::Task> set_up_task(const Config& config,
                                              std::shared_ptr<const data::Tokenizer> tokenizer);

// The model's parameters as the optimizer wants them.
std::vector<optim::NamedParam> optimizer_params(const models::CausalLM& model);

// The optimizer of the config over the model's parameters, and the schedule that drives it; with
// several ranks the data-parallel buffers too, into which the parameters move (collective). So it
// is on one rank in bf16, for gradients that add up in fp32 (grad_reduce_in_fp32).
// `measure_update_rms` off: for timing, where the measure would count as the optimizer's work.
struct OptimizerSetup {
  parallel::WrappedModel wrapped;  // without buffers: its optimizer alone
  std::unique_ptr<optim::OptimizerParamScheduler> scheduler;
  std::optional<double> qk_clip_tau = std::nullopt;
};
OptimizerSetup set_up_optimizer(const Config& config, const models::CausalLM& model,
                                int64_t total_steps, const Ranks& ranks,
                                bool measure_update_rms = true);

// trainer.default_local_dir, or checkpoints/<project_name>/<experiment_name>.
std::filesystem::path run_folder(const Config& config);

// trainer.total_training_steps, or total_epochs times the whole batches of an epoch of `examples`.
// Throws Error when an epoch is less than one batch.
int64_t total_steps(const Config& config, int64_t examples);

// data.train_files or data.val_files; empty when null.
std::vector<std::filesystem::path> data_files(const Config& config, const std::string& key);

}  // namespace muoncore::train
