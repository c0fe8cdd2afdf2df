// Options of the model: verl's hf_model.yaml, and a model described in the config itself, with
// random weights.
#include "muoncore/train/config_tables.h"

namespace muoncore::train {

Options model_options(const std::string& prefix) {
  return under(
      prefix,
      {
          null_text("path", "Hugging Face folder of the model; null: random weights (see config)")
              .file()
              .verl("~/models/deepseek-llm-7b-chat"),
          null_text("hf_config_path", "config.json of a model with random weights").file(),
          null_text("tokenizer_path",
                    "folder of the tokenizer; null: path, or one character per token")
              .file(),
          only_flag("trust_remote_code", false, "no Python code of a model is run"),
          only_flag("enable_gradient_checkpointing", false, "activations are kept").verl(true),
          only_integer("lora_rank", 0, "all weights are trained"),
          null_integer("init_seed", "seed of random weights; null: trainer.seed")
              .at_least(0)
              .added(),
          text("config.model_type", "qwen3", "architecture of a model with random weights")
              .one_of({"qwen3", "qwen2", "llama"})
              .added(),
          null_integer("config.vocab_size", "null: the tokenizer's").at_least(1).added(),
          integer("config.hidden_size", 128, "width of the residual stream").at_least(1).added(),
          integer("config.intermediate_size", 384, "width of the MLP").at_least(1).added(),
          integer("config.num_hidden_layers", 4, "layers").at_least(1).added(),
          integer("config.num_attention_heads", 4, "query heads").at_least(1).added(),
          integer("config.num_key_value_heads", 2, "key and value heads; divides the query heads")
              .at_least(1)
              .added(),
          null_integer("config.head_dim", "null: hidden_size / num_attention_heads")
              .at_least(2)
              .added(),
          integer("config.max_position_embeddings", 2048, "longest sequence").at_least(1).added(),
          real("config.rms_norm_eps", 1e-6, "epsilon of the norms").above(0).added(),
          real("config.rope_theta", 10000.0, "base of the rotary frequencies").above(0).added(),
          flag("config.tie_word_embeddings", false, "output layer = embedding").added(),
          flag("config.attention_bias", false, "biases of the attention (llama, qwen3)").added(),
          real("config.initializer_range", 0.02, "standard deviation of random weights")
              .above(0)
              .added(),
      });
}

Refusals model_refusals(const std::string& prefix) {
  Refusals refusals = refuse(prefix, {"use_shm"}, "weights are mapped from their files");
  append(refusals, refuse(prefix, {"external_lib"}, "no Python code is run"));
  append(refusals, refuse(prefix, {"custom_chat_template"}, "set data.chat_template"));
  append(refusals, refuse(prefix, {"override_config"},
                          "write the model's config.json, or the config section"));
  append(refusals, refuse(prefix, {"enable_activation_offload"}, "activations are kept"));
  append(refusals, refuse(prefix, {"use_remove_padding", "truncate_padding"},
                          "batches are padded on the right to their longest sequence"));
  append(refusals,
         refuse(prefix,
                {"lora", "lora_alpha", "lora_adapter_path", "target_modules", "exclude_modules"},
                "all weights are trained"));
  append(refusals,
         refuse(prefix, {"use_liger", "use_fused_kernels", "fused_kernel_options", "tiled_mlp"},
                "there is one implementation of the model"));
  append(refusals, refuse(prefix, {"mtp"}, "multi-token prediction is not built"));
  return refusals;
}

}  // namespace muoncore::train
