#include "muoncore/train/setup.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <sched.h>

#include <algorithm>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/core/json_file.h"
#include "muoncore/data/char_tokenizer.h"
#include "muoncore/models/hf.h"
#include "muoncore/optim/build.h"
#include "muoncore/train/config_derived.h"
#include "muoncore/train/config_ranks.h"

namespace muoncore::train {

namespace fs = std::filesystem;

c10::Device device_named(const std::string& name, const std::string& key) {
  const bool cuda = at::globalContext().hasCUDA();
  check(name != "cuda" || cuda,
        "{}: value cuda, but this machine (or this build of torch) has no CUDA device; set cpu or "
        "auto",
        key);
  return name != "cpu" && cuda ? c10::Device(c10::DeviceType::CUDA, 0)
                               : c10::Device(c10::DeviceType::CPU);
}

c10::Device resolve_device(const Config& config, const Ranks& ranks) {
  const std::string wanted = config.text("trainer.device");
  if (ranks.size() == 1) return device_named(wanted, "trainer.device");
  check(wanted != "cuda",
        "trainer.device: value cuda, but there are {} ranks, which talk over Gloo, from the CPU; "
        "set cpu or auto",
        ranks.size());
  return c10::Device(c10::DeviceType::CPU);
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  check(sched_getaffinity(0, sizeof(set), &set) == 0,
        "the cores of this process cannot be asked for");
  return std::max(1, CPU_COUNT(&set));
}

int set_threads(const Config& config, const Ranks& ranks) {
  if (!config.is_null("trainer.threads")) {
    at::set_num_threads(static_cast<int>(config.integer("trainer.threads")));
  } else if (ranks.local_size() > 1) {
    at::set_num_threads(std::max(1, usable_cores() / static_cast<int>(ranks.local_size())));
  }
  return at::get_num_threads();
}

at::ScalarType resolve_dtype(const Config& config) {
  const std::string key = config.engine_prefix() + ".dtype";
  const std::string name = config.text(key);
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  fail("{}: value {}; allowed: float32, bfloat16", key, name);
}

namespace {

std::shared_ptr<const data::Tokenizer> set_up_tokenizer(const Config& config) {
  const std::string prefix = config.model_prefix();
  for (const char* key : {".tokenizer_path", ".path"}) {
    if (!config.is_null(prefix + key)) return data::load_tokenizer(config.text(prefix + key));
  }
  return std::make_shared<data::CharTokenizer>();
}

// A model that is made here ends its texts as its tokenizer does.
void adopt_special_ids(models::ModelConfig& model, const data::SpecialIds& ids) {
  if (model.eos_token_ids.empty()) model.eos_token_ids = ids.stop;
  if (!model.bos_token_id) model.bos_token_id = ids.bos;
  if (!model.pad_token_id) model.pad_token_id = ids.pad;
}

std::shared_ptr<models::CausalLM> random_model(const Config& config,
                                               const data::Tokenizer& tokenizer, int64_t seed,
                                               const c10::Device& device) {
  const std::string prefix = config.model_prefix();
  const bool own_file = !config.is_null(prefix + ".hf_config_path");
  const std::string label = own_file ? config.text(prefix + ".hf_config_path") : prefix + ".config";
  const nlohmann::json json =
      own_file ? read_json(label) : model_config_json(config, tokenizer.vocab_size());
  models::ModelConfig model_config = models::config_from_json(json, label);
  adopt_special_ids(model_config, tokenizer.special());
  auto model = std::make_shared<models::CausalLM>(model_config, resolve_dtype(config), device);
  model->init_weights(static_cast<uint64_t>(seed));
  return model;
}

}  // namespace

ModelSetup set_up_model(const Config& config, const c10::Device& device) {
  const std::string prefix = config.model_prefix();
  ModelSetup setup;
  setup.tokenizer = set_up_tokenizer(config);
  if (!config.is_null(prefix + ".path")) {
    setup.source = config.text(prefix + ".path");
    setup.model = models::load_hf(setup.source, resolve_dtype(config), device).model;
  } else {
    const int64_t seed = seed_of(config, prefix + ".init_seed");
    setup.source = fmt::format("random weights (seed {})", seed);
    setup.model = random_model(config, *setup.tokenizer, seed, device);
  }
  data::check_vocabulary(*setup.tokenizer, setup.model->config().vocab_size, setup.source);
  return setup;
}

std::shared_ptr<models::CausalLM> frozen_copy(const models::CausalLM& model) {
  const torch::NoGradGuard no_grad;
  const auto source = model.named_params();
  auto copy = std::make_shared<models::CausalLM>(model.config(), model.dtype(),
                                                 source.front().second.device());
  auto target = copy->named_params();
  for (size_t i = 0; i < source.size(); ++i) {
    target[i].second.copy_(source[i].second);
    target[i].second.requires_grad_(false);
  }
  return copy;
}

std::shared_ptr<const data::Task> set_up_task(const Config& config,
                                              std::shared_ptr<const data::Tokenizer> tokenizer) {
  data::TaskOptions options;
  options.name = config.text("data.task");
  options.seed = static_cast<uint64_t>(seed_of(config, "data.seed"));
  options.shuffle = config.flag("data.shuffle");
  options.eval_size = config.integer("data.eval_size");
  options.max_prompt_length = config.integer("data.max_prompt_length");
  options.chat_template = config.text("data.chat_template");
  if (!config.is_null("data.digits")) options.digits = config.integer("data.digits");
  if (!config.is_null("data.teacher_error")) {
    options.teacher_error = config.real("data.teacher_error");
  }
  if (config.kind() == ConfigKind::kGrpo) {
    options.truncation = config.text("data.truncation");
    options.train_files = data_files(config, "data.train_files");
    options.val_files = data_files(config, "data.val_files");
    options.train_max_samples = config.integer("data.train_max_samples");
    options.prompt_key = config.text("data.prompt_key");
    options.reward_fn = config.text("data.reward_fn");
    options.filter_overlong_prompts = config.flag("data.filter_overlong_prompts");
  }
  return data::make_task(options, std::move(tokenizer));
}

std::vector<optim::NamedParam> optimizer_params(const models::CausalLM& model) {
  std::vector<optim::NamedParam> out;
  const auto specs = model.param_specs();
  const auto params = model.named_params();
  for (size_t i = 0; i < specs.size(); ++i) out.push_back({specs[i], params[i].second});
  return out;
}

namespace {

parallel::WrappedModel wrap(const Config& config, const models::CausalLM& model,
                            const optim::OptimizerConfig& settings, const Ranks& ranks) {
  const parallel::DistributedDataParallelConfig ddp = ddp_config(config);
  const bool own_gradients = model.dtype() == at::kBFloat16 && ddp.grad_reduce_in_fp32;
  if (ranks.size() == 1 && !own_gradients) {
    parallel::WrappedModel alone;
    alone.optimizer = optim::build_optimizer(optimizer_params(model), settings);
    return alone;
  }
  parallel::ModelChunk chunk;
  for (const auto& [spec, tensor] : optimizer_params(model)) chunk.params.push_back({spec, tensor});
  parallel::ParallelGroups groups;
  groups.world = groups.dp = ranks.gradients();
  return parallel::wrap_model_chunks_with_layerwise_aware_ddp({chunk}, settings, ddp, groups);
}

}  // namespace

OptimizerSetup set_up_optimizer(const Config& config, const models::CausalLM& model,
                                int64_t total_steps, const Ranks& ranks, bool measure_update_rms) {
  optim::OptimizerConfig settings = optimizer_config(config, total_steps);
  settings.measure_update_rms = measure_update_rms;
  OptimizerSetup out;
  out.wrapped = wrap(config, model, settings, ranks);
  out.scheduler = std::make_unique<optim::OptimizerParamScheduler>(
      *out.wrapped.optimizer, optim::scheduler_options(settings));
  out.qk_clip_tau = settings.muon_qk_clip_tau;
  return out;
}

fs::path run_folder(const Config& config) {
  if (!config.is_null("trainer.default_local_dir")) {
    return config.text("trainer.default_local_dir");
  }
  return fs::path("checkpoints") / config.text("trainer.project_name") /
         config.text("trainer.experiment_name");
}

int64_t total_steps(const Config& config, int64_t examples) {
  if (!config.is_null("trainer.total_training_steps")) {
    return config.integer("trainer.total_training_steps");
  }
  const int64_t batch = config.integer("data.train_batch_size");
  check(examples >= batch,
        "data.train_batch_size: value {}, but an epoch has only {} examples; set a smaller batch, "
        "or trainer.total_training_steps",
        batch, examples);
  return config.integer("trainer.total_epochs") * (examples / batch);
}

std::vector<fs::path> data_files(const Config& config, const std::string& key) {
  if (config.is_null(key)) return {};
  const std::vector<std::string> names = config.texts(key);
  return {names.begin(), names.end()};
}

}  // namespace muoncore::train
