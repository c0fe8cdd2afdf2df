#include "muoncore/train/config_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::train {

void fail_at(const Config& config, const std::string& path, const std::string& complaint) {
  fail("{}: key '{}': value {}: {}", config.origin(path), path, to_flow_yaml(config.node(path)),
       complaint);
}

namespace {

bool at_default(const Config& config, const std::string& path) {
  return config.node(path).same_value(config.table().find(path)->fallback);
}

bool is_generated(const std::string& task) { return task != "jsonl"; }

void check_task_files(const Config& config, const std::string& task) {
  if (!is_generated(task) && config.is_null("data.train_files"))
    fail_at(config, "data.task", "it needs data.train_files, which is null");
  for (const char* files : {"data.train_files", "data.val_files"})
    if (is_generated(task) && !config.is_null(files))
      fail_at(config, files,
              fmt::format("data.task: {} reads no files; set data.task=jsonl", task));
  const std::string model = config.model_prefix();
  if (!is_generated(task) && config.is_null(model + ".path") &&
      config.is_null(model + ".tokenizer_path"))
    fail_at(
        config, "data.task",
        fmt::format("it needs a tokenizer, and {0}.path and {0}.tokenizer_path are null", model));
}

}  // namespace

void check_trainer(const Config& config) {
  const std::vector<std::string> loggers = config.texts("trainer.logger");
  for (auto it = loggers.begin(); it != loggers.end(); ++it)
    if (std::find(std::next(it), loggers.end(), *it) != loggers.end())
      fail_at(config, "trainer.logger", fmt::format("{} stands twice", *it));
  const std::string folder = "trainer.default_local_dir";
  if (!config.is_null(folder) && config.text(folder).empty())
    fail_at(config, folder, "it names no folder; null means checkpoints/<project>/<experiment>");
}

void check_model(const Config& config) {
  const std::string model = config.model_prefix();
  const bool has_path = !config.is_null(model + ".path");
  const bool has_file = !config.is_null(model + ".hf_config_path");
  if (has_path && has_file)
    fail_at(config, model + ".hf_config_path",
            fmt::format("the model is read from {}.path; set one of the two", model));
  const std::string section = model + ".config.";
  for (const auto& [path, value] : config.values()) {
    if (!path.starts_with(section) || at_default(config, path)) continue;
    if (has_path || has_file)
      fail_at(config, path,
              fmt::format("the model is described by {}{}; leave {}.config out", model,
                          has_path ? ".path" : ".hf_config_path", model));
  }
  if (has_path || has_file) return;
  int64_t heads = config.integer(section + "num_attention_heads");
  int64_t kv_heads = config.integer(section + "num_key_value_heads");
  int64_t width = config.integer(section + "hidden_size");
  if (heads % kv_heads != 0)
    fail_at(config, section + "num_key_value_heads",
            fmt::format("it must divide {}num_attention_heads: {}", section, heads));
  if (config.is_null(section + "head_dim") && width % heads != 0)
    fail_at(config, section + "hidden_size",
            fmt::format("it is no multiple of {0}num_attention_heads: {1}, and {0}head_dim is null",
                        section, heads));
  bool derived = config.is_null(section + "head_dim");
  int64_t head_dim = derived ? width / heads : config.integer(section + "head_dim");
  if (head_dim % 2 != 0)
    fail_at(config, section + (derived ? "hidden_size" : "head_dim"),
            fmt::format("rotary embeddings need an even head_dim, found {}", head_dim));
}

void check_data(const Config& config) {
  const std::string task = config.text("data.task");
  check_task_files(config, task);
  if (!config.is_null("data.digits") && !task.starts_with("addition"))
    fail_at(config, "data.digits",
            fmt::format("data.task: {} has no digits; addition and addition_text have", task));
  if (!config.is_null("data.teacher_error") && task != "addition" && task != "countdown")
    fail_at(
        config, "data.teacher_error",
        fmt::format("data.task: {} has no imperfect teacher; addition and countdown have", task));
  if (config.kind() != ConfigKind::kSft) return;
  int64_t batch = config.integer("data.train_batch_size");
  if (config.integer("data.micro_batch_size_per_gpu") > batch &&
      config.origin("data.micro_batch_size_per_gpu") != "default")
    fail_at(config, "data.micro_batch_size_per_gpu",
            fmt::format("it is larger than data.train_batch_size: {}", batch));
}

void check_grpo(const Config& config) {
  const std::string actor = "actor_rollout_ref.actor.";
  int64_t batch = config.integer("data.train_batch_size");
  int64_t mini = config.integer(actor + "ppo_mini_batch_size");
  if (mini > batch || batch % mini != 0)
    fail_at(config, actor + "ppo_mini_batch_size",
            fmt::format("it must divide data.train_batch_size: {}", batch));
  const std::string mode = config.text(actor + "loss_agg_mode");
  if (!config.is_null(actor + "loss_scale_factor") && mode != "seq-mean-token-sum-norm")
    fail_at(config, actor + "loss_scale_factor",
            fmt::format("{}loss_agg_mode: {} does not use it; seq-mean-token-sum-norm does", actor,
                        mode));
  const std::string val = "actor_rollout_ref.rollout.val_kwargs.";
  if (config.flag(val + "do_sample") && config.real(val + "temperature") == 0.0)
    fail_at(config, val + "do_sample",
            fmt::format("sampling needs a temperature above 0; {}temperature is 0", val));
  const std::string longest = config.model_prefix() + ".config.max_position_embeddings";
  bool own_model = config.is_null(config.model_prefix() + ".path") &&
                   config.is_null(config.model_prefix() + ".hf_config_path");
  int64_t tokens =
      config.integer("data.max_prompt_length") + config.integer("data.max_response_length");
  if (own_model && tokens > config.integer(longest))
    fail_at(config, "data.max_response_length",
            fmt::format("with data.max_prompt_length it makes {} tokens, more than {}: {}", tokens,
                        longest, config.integer(longest)));
}

void check_files(const Config& config) {
  if (config.kind() == ConfigKind::kCompare) check_compare(config, /*files=*/true);
  for (const Option& option : config.table().options()) {
    if (!option.names_file || config.is_null(option.path)) continue;
    const YamlNode& value = config.node(option.path);
    std::vector<YamlNode> files =
        value.type == YamlType::kList ? value.items : std::vector<YamlNode>{value};
    for (const YamlNode& file : files)
      check(std::filesystem::exists(file.text), "{}: key '{}': '{}' does not exist",
            config.origin(option.path), option.path, file.text);
  }
}

}  // namespace muoncore::train
