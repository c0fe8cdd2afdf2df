// Options of `data`: which task, which files, how long, how many.
#include "muoncore/train/config_tables.h"

namespace muoncore::train {
namespace {

constexpr const char* kTextOnly = "models read text only";

std::vector<Row> task_rows() {
  return {
      text("task", "addition",
           "addition, addition_text, countdown are generated; jsonl reads train_files")
          .one_of({"addition", "addition_text", "countdown", "jsonl"})
          .added(),
      null_integer("digits", "of addition's numbers; null: the task's own").at_least(1).added(),
      null_real("teacher_error", "share of the teacher's answers that are wrong; null: the task's")
          .at_least(0)
          .at_most(1)
          .added(),
      integer("eval_size", 512, "held-out prompts of a generated task").at_least(1).added(),
      text("chat_template", "auto",
           "how messages become text; auto: by the tokenizer's own template")
          .one_of({"auto", "chatml", "llama3"})
          .added(),
      null_texts("train_files", "JSON lines to train on (task jsonl)").file(),
      null_texts("val_files", "JSON lines held out (task jsonl)").file(),
      integer("train_max_samples", -1, "take the first so many lines; -1: all")
          .at_least(1)
          .also(-1),
      flag("shuffle", true, "shuffle the files' lines, anew in each epoch"),
      null_integer("seed", "of the order of the examples; null: trainer.seed").at_least(0),
  };
}

std::vector<Row> grpo_rows() {
  return {
      text("prompt_key", "prompt", "field of a line with the prompt"),
      text("reward_fn", "gsm8k", "reward of jsonl: gsm8k (`#### answer`) or exact")
          .one_of({"gsm8k", "exact"})
          .added(),
      integer("max_prompt_length", 512, "tokens").at_least(1),
      integer("max_response_length", 512, "tokens; generation ends there").at_least(1),
      integer("train_batch_size", 1024, "prompts of one training step").at_least(1),
      flag("filter_overlong_prompts", false, "drop prompts that are too long"),
      text("truncation", "error", "what happens to a prompt that is too long")
          .one_of({"error", "left", "right", "middle"}),
      only_flag("validation_shuffle", false, "validation reads its prompts in order"),
      only_integer("val_max_samples", -1, "all of val_files is read; shorten the file"),
  };
}

std::vector<Row> sft_rows() {
  return {
      integer("train_batch_size", 256, "examples of one optimizer step").at_least(1),
      integer("micro_batch_size_per_gpu", 4, "examples of one forward and backward pass")
          .at_least(1),
      only_flag("use_dynamic_bsz", false, "micro-batches have a fixed number of rows").verl(true),
      only_text("messages_key", "messages", "the field of a conversation has this name"),
      only_text("pad_mode", "right", "batches are padded on the right to their longest sequence")
          .verl("no_padding"),
      integer("max_length", 1024, "tokens of prompt and response together").at_least(2),
      text("truncation", "error", "what happens to an example that is too long")
          .one_of({"error", "left", "right"}),
      integer("max_prompt_length", 512, "tokens of a held-out prompt").at_least(1).added(),
      integer("max_response_length", 512, "tokens generated for a held-out prompt")
          .at_least(1)
          .added(),
      only_integer("val_max_samples", -1, "all of val_files is read; shorten the file"),
  };
}

Refusals shared_refusals() {
  Refusals all = refuse("data", {"use_shm"}, "files are read from where they are");
  append(all, refuse("data", {"custom_cls", "sampler", "datagen"}, "no Python code is run"));
  append(all, refuse("data", {"apply_chat_template_kwargs"}, "set data.chat_template"));
  append(all, refuse("data", {"tool_config_path", "function_tool_path", "tools_key"},
                     "there are no tools"));
  return all;
}

}  // namespace

Options data_options(ConfigKind kind) {
  Options options = under("data", task_rows());
  append(options, under("data", kind == ConfigKind::kSft ? sft_rows() : grpo_rows()));
  for (Option& option : options) {
    if (option.path == "data.val_files" && kind == ConfigKind::kGrpo)
      option.verl_default = YamlNode::of("~/data/rlhf/gsm8k/test.parquet");
    if (option.path == "data.train_files")
      option.verl_default =
          YamlNode::of(kind == ConfigKind::kSft ? "~/data/gsm8k/train.parquet"
                                                : "~/data/rlhf/gsm8k/train.parquet");
    bool sft_has_not = option.path == "data.shuffle" || option.path == "data.seed";
    if (kind == ConfigKind::kSft && sft_has_not) option.added = true;
  }
  return options;
}

Refusals data_refusals(ConfigKind kind) {
  Refusals all = shared_refusals();
  if (kind == ConfigKind::kSft) {
    append(all,
           refuse("data", {"max_token_len_per_gpu"}, "micro-batches have a fixed number of rows"));
    append(all, refuse("data", {"enable_thinking_key", "enable_thinking_default"},
                       "set data.chat_template"));
    append(all, refuse("data", {"balance_dp_token"}, "rows are dealt to ranks in their order"));
    append(all, refuse("data", {"num_workers"}, "files are read by the trainer itself"));
    append(all, refuse("data", {"ignore_input_ids_mismatch"},
                       "a conversation is rendered once, as a whole"));
    append(all, refuse("data", {"prompt_key", "response_key"},
                       "the fields of a line are prompt and response, or messages"));
    return all;
  }
  append(all, refuse("data", {"tokenizer"}, "set actor_rollout_ref.model.tokenizer_path"));
  append(all, refuse("data", {"reward_fn_key"}, "set data.reward_fn"));
  append(all, refuse("data", {"gen_batch_size"}, "a step generates for train_batch_size prompts"));
  append(all, refuse("data", {"val_batch_size"}, "set actor_rollout_ref.rollout.max_num_seqs"));
  append(all, refuse("data", {"return_raw_input_ids", "return_raw_chat", "return_full_prompt"},
                     "there is no model-based reward"));
  append(all, refuse("data", {"dataloader_num_workers", "filter_overlong_prompts_workers"},
                     "files are read by the trainer itself"));
  append(all, refuse("data",
                     {"image_key", "video_key", "audio_key", "image_patch_size",
                      "return_multi_modal_inputs", "mm_processor_kwargs"},
                     kTextOnly));
  append(all, refuse("data", {"trust_remote_code"}, "no Python code of a model is run"));
  return all;
}

}  // namespace muoncore::train
