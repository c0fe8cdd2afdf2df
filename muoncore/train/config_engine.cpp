// Options of the training engine: verl's McoreEngineConfig (actor_rollout_ref.actor.megatron, and
// engine of sft). Ranks share the data alone, so the sizes of the other kinds of parallelism are 1.
#include "muoncore/train/config_tables.h"

namespace muoncore::train {
namespace {

constexpr const char* kDataParallel = "model parallelism is not supported yet";
constexpr const char* kByOwner = "buffers of the layer-wise optimizer are always laid out by owner";
constexpr const char* kNoOffload = "states stay where they are computed";

// Megatron's DistributedDataParallelConfig.
Options ddp_keys() {
  Options keys;
  keys.push_back(flag("grad_reduce_in_fp32", true, ""));
  keys.push_back(flag("overlap_grad_reduce", false, ""));
  keys.push_back(flag("overlap_param_gather", false, ""));
  keys.push_back(flag("use_distributed_optimizer", true, ""));
  keys.push_back(null_flag("use_layer_wise_param_layout", "").one_of({"True"}).why(kByOwner));
  keys.push_back(
      only_flag("average_in_collective", false,
                "gradients are summed: losses are divided by the whole batch's numbers"));
  keys.push_back(null_integer("bucket_size", "").at_least(1));
  keys.push_back(flag("pad_buckets_for_high_nccl_busbw", false, ""));
  keys.push_back(
      flag("check_for_nan_in_grad", true, ""));  // a step always checks; it skips, and says so
  return keys;
}

}  // namespace

Options engine_options(const std::string& prefix) {
  return under(
      prefix,
      {
          only_flag("param_offload", false, kNoOffload),
          only_flag("grad_offload", false, kNoOffload),
          only_flag("optimizer_offload", false, kNoOffload),
          only_integer("tensor_model_parallel_size", 1, kDataParallel),
          only_integer("expert_model_parallel_size", 1, kDataParallel),
          only_integer("pipeline_model_parallel_size", 1, kDataParallel),
          only_integer("context_parallel_size", 1, kDataParallel),
          null_integer("expert_tensor_parallel_size", "").at_least(1).at_most(1).why(kDataParallel),
          flag("sequence_parallel", true,
               "either value: without tensor parallelism it has no effect, as in verl"),
          flag("use_distributed_optimizer", true,
               "ranks share AdamW's state (ZeRO-1); with Muon, whole matrices too (the layer-wise "
               "optimizer); False: each rank holds and updates all"),
          text("param_layout", "balanced",
               "of the layer-wise optimizer's buffers: balanced (owners by work and bytes), or "
               "megatron (Megatron-Core's equal shards)")
              .one_of({"balanced", "megatron"})
              .added(),
          mapping("override_ddp_config", "Megatron's DistributedDataParallelConfig, key by key")
              .mapping_keys(ddp_keys()),
          only_flag("forward_only", false, "the actor is trained"),
          text("dtype", "float32",
               "of parameters and activations; bfloat16 keeps fp32 masters in the optimizer")
              .one_of({"float32", "bfloat16", "float16"})
              .verl("bfloat16"),
      });
}

Refusals engine_refusals(const std::string& prefix) {
  Refusals refusals = refuse(prefix, {"virtual_pipeline_model_parallel_size"}, kDataParallel);
  append(refusals,
         refuse(prefix, {"dynamic_context_parallel", "max_seqlen_per_dp_cp_rank"}, kDataParallel));
  append(refusals, refuse(prefix, {"offload"}, kNoOffload));
  append(refusals, refuse(prefix,
                          {"use_dist_checkpointing", "dist_checkpointing_path",
                           "dist_checkpointing_prefix", "dist_ckpt_optim_fully_reshardable",
                           "distrib_optim_fully_reshardable_mem_efficient"},
                          "checkpoints are Hugging Face folders"));
  append(refusals, refuse(prefix, {"seed"}, "every random number comes from trainer.seed"));
  append(refusals, refuse(prefix, {"override_transformer_config"},
                          "the model's own config describes it, and activations are kept"));
  append(refusals, refuse(prefix, {"override_mcore_model_config", "use_mbridge", "vanilla_mbridge"},
                          "there is no Megatron underneath"));
  append(refusals, refuse(prefix,
                          {"use_remove_padding", "pad_bshd_to_minibatch_max", "pad_to_length",
                           "pad_to_length_bucket"},
                          "batches are padded on the right to their longest sequence"));
  append(refusals, refuse(prefix, {"use_megatron_fsdp"}, "parameters are not sharded"));
  append(refusals,
         refuse(prefix, {"entropy_from_logits_with_chunking", "entropy_from_logits_chunk_size"},
                "entropy is computed in blocks of rows always"));
  append(refusals, refuse(prefix, {"router_replay"}, "models with experts are not built yet"));
  append(refusals, refuse(prefix, {"qat"}, "quantization-aware training is not built"));
  append(refusals,
         refuse(prefix,
                {"strategy", "fsdp_size", "wrap_policy", "offload_policy", "reshard_after_forward",
                 "forward_prefetch", "model_dtype", "use_orig_params",
                 "ulysses_sequence_parallel_size", "mixed_precision", "use_torch_compile"},
                "it belongs to verl's FSDP engine; this tree is its Megatron one"));
  return refusals;
}

Options checkpoint_options(const std::string& prefix) {
  return under(prefix,
               {
                   texts("save_contents", {"hf_model"},
                         "what trainer.save_freq writes: a Hugging Face folder")
                       .one_of({"hf_model"})
                       .why("optimizer state is written once resume exists")
                       .verl_node(YamlNode::list({YamlNode::of("model"), YamlNode::of("optimizer"),
                                                  YamlNode::of("extra")})),
                   only_flag("async_save", false, "the run waits for its checkpoint"),
               });
}

Refusals checkpoint_refusals(const std::string& prefix) {
  Refusals refusals = refuse(prefix, {"load_contents"}, "resume is not built yet");
  append(refusals, refuse(prefix, {"strict"}, "every tensor is always checked"));
  append(refusals, refuse(prefix, {"mbridge_config"}, "there is no Megatron underneath"));
  return refusals;
}

}  // namespace muoncore::train
