// Options of actor_rollout_ref.{actor, rollout, ref}, without the actor's optimizer, engine and
// checkpoint.
#include "muoncore/rl/kl_penalty.h"
#include "muoncore/rl/loss_aggregation.h"
#include "muoncore/rl/policy_loss.h"
#include "muoncore/train/config_tables.h"

namespace muoncore::train {
namespace {

constexpr const char* kFixedBatches = "micro-batches have a fixed number of rows";

Options actor_rows() {
  return under(
      "actor_rollout_ref.actor",
      {
          only_text("strategy", "megatron", "verl's Megatron tree is the one that is read"),
          integer("ppo_mini_batch_size", 256, "prompts of one optimizer step").at_least(1),
          null_integer("ppo_micro_batch_size_per_gpu",
                       "rollouts of one forward and backward pass; null: the mini-batch at once")
              .at_least(1),
          only_flag("use_dynamic_bsz", false, kFixedBatches),
          real("clip_ratio", 0.2,
               "sets clip_ratio_low and clip_ratio_high where they are not set (verl ignores it)")
              .at_least(0),
          real("clip_ratio_low", 0.2, "ratio is clipped at 1 - low").at_least(0),
          real("clip_ratio_high", 0.2, "ratio is clipped at 1 + high").at_least(0),
          real("clip_ratio_c", 3.0, "dual clip: bound of the loss where the advantage is negative")
              .above(1),
          text("policy_loss.loss_mode", "vanilla", "vanilla: PPO-clip with dual clip")
              .one_of(rl::loss_mode_names())
              .why("verl's other losses are not built"),
          text("loss_agg_mode", "token-mean", "from a loss per token to one number")
              .one_of(rl::loss_agg_mode_names()),
          null_real("loss_scale_factor",
                    "divisor of seq-mean-token-sum-norm; null: the padded response length")
              .above(0),
          real("entropy_coeff", 0.0, "weight of the entropy bonus").at_least(0),
          flag("calculate_entropy", false, "measure the entropy even without a bonus"),
          flag("use_kl_loss", false, "add the KL divergence from the reference to the loss"),
          real("kl_loss_coef", 0.001, "its weight").at_least(0),
          text("kl_loss_type", "low_var_kl", "its estimator").one_of(rl::kl_penalty_names()),
          integer("ppo_epochs", 1, "passes over each batch of rollouts").at_least(1),
          flag("shuffle", false, "shuffle the batch before it is cut into mini-batches"),
          integer("data_loader_seed", 42, "seed of that shuffle").at_least(0),
      });
}

Options rollout_rows() {
  return under(
      "actor_rollout_ref.rollout",
      {
          only_text("name", "muoncore", "the model itself generates; there is no other engine")
              .verl("???"),
          only_text("mode", "sync", "generation and training take turns").verl("async"),
          integer("n", 1, "responses of each prompt: the group").at_least(1),
          real("temperature", 1.0, "of sampling, and of the log-probabilities in the loss")
              .above(0),
          integer("top_k", -1, "sample from the k likeliest tokens; -1: all").at_least(1).also(-1),
          real("top_p", 1.0, "sample from the likeliest tokens that reach this probability")
              .above(0)
              .at_most(1),
          null_integer("seed", "seed of sampling; null: trainer.seed").at_least(0).verl(42),
          only_flag("do_sample", true, "training needs responses that differ"),
          only_integer("tensor_model_parallel_size", 1, "each rank generates alone").verl(2),
          integer("max_num_seqs", 1024, "responses that are generated at once").at_least(1),
          null_integer("log_prob_micro_batch_size_per_gpu",
                       "rollouts of one forward pass for old_log_prob; null: the actor's")
              .at_least(1),
          only_flag("log_prob_use_dynamic_bsz", false, kFixedBatches),
          flag("calculate_log_probs", true,
               "log how far the sampler's log-probabilities are from the trainer's"),
          null_text("replay_dir",
                    "train on the rollouts that a run recorded there (trainer.rollout_data_dir) "
                    "instead of sampling; null: sample")
              .file()
              .added(),
          only_flag("full_determinism", true, "a run of the same seed gives the same bytes")
              .verl(false),
          only_flag("ignore_eos", false, "a response ends at its end token"),
          integer("val_kwargs.n", 1, "responses of each held-out prompt").at_least(1),
          flag("val_kwargs.do_sample", false, "sample at validation; False: greedy"),
          real("val_kwargs.temperature", 0.0, "of sampling at validation; 0: greedy").at_least(0),
          integer("val_kwargs.top_k", -1, "as top_k, at validation").at_least(1).also(-1),
          real("val_kwargs.top_p", 1.0, "as top_p, at validation").above(0).at_most(1),
      });
}

Options ref_rows() {
  return under(
      "actor_rollout_ref.ref",
      {
          only_text("strategy", "megatron", "verl's Megatron tree is the one that is read"),
          null_integer("log_prob_micro_batch_size_per_gpu",
                       "rollouts of one forward pass for ref_log_prob; null: the actor's")
              .at_least(1),
          only_flag("log_prob_use_dynamic_bsz", false, kFixedBatches),
          only_flag("megatron.param_offload", false, "states stay where they are computed"),
      });
}

Refusals policy_refusals() {
  const std::string actor = "actor_rollout_ref.actor";
  Refusals all = refuse(actor, {"rollout_n"}, "set actor_rollout_ref.rollout.n");
  append(all, refuse(actor, {"ppo_micro_batch_size"},
                     "it is deprecated in verl; set ppo_micro_batch_size_per_gpu"));
  append(all, refuse(actor, {"ppo_max_token_len_per_gpu"}, kFixedBatches));
  append(all, refuse(actor, {"tau_pos", "tau_neg"}, "the loss sapo is not built"));
  append(all, refuse(actor + ".policy_loss",
                     {"clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio", "ppo_kl_coef",
                      "dro_beta"},
                     "the loss it belongs to is not built"));
  append(all, refuse(actor, {"freeze_vision_tower"}, "models read text only"));
  append(all, refuse(actor, {"calculate_sum_pi_squared"}, "no estimator here needs it"));
  append(all, refuse(actor, {"use_prefix_grouper", "use_fused_kernels", "use_torch_compile"},
                     "there is one implementation of the model"));
  append(all, refuse(actor, {"entropy_from_logits_with_chunking", "entropy_from_logits_chunk_size"},
                     "entropy is computed in blocks of rows always"));
  append(all, refuse(actor, {"router_replay"}, "models with experts are not built yet"));
  append(all, refuse(actor, {"profiler"}, "the timers are always on (timing_s/...)"));
  append(all, refuse(actor, {"qat"}, "quantization-aware training is not built"));
  append(all, refuse(actor, {"load_weight"}, "weights are always read"));
  append(all, refuse(actor, {"fsdp_config", "veomni", "torchtitan", "automodel", "grad_clip"},
                     "it belongs to another engine of verl; the engine is megatron"));
  return all;
}

Refusals rollout_refusals() {
  const std::string rollout = "actor_rollout_ref.rollout";
  Refusals all = refuse(rollout, {"prompt_length"}, "set data.max_prompt_length");
  append(all, refuse(rollout, {"response_length"}, "set data.max_response_length"));
  append(all, refuse(rollout, {"dtype"}, "set actor_rollout_ref.actor.megatron.dtype"));
  append(all, refuse(rollout,
                     {"gpu_memory_utilization",
                      "enforce_eager",
                      "cudagraph_capture_sizes",
                      "free_cache_engine",
                      "data_parallel_size",
                      "expert_parallel_size",
                      "pipeline_model_parallel_size",
                      "max_num_batched_tokens",
                      "max_model_len",
                      "enable_chunked_prefill",
                      "enable_prefix_caching",
                      "logprobs_mode",
                      "scheduling_policy",
                      "load_format",
                      "layered_summon",
                      "disable_log_stats",
                      "over_sample_rate",
                      "multi_stage_wake_up",
                      "engine_kwargs",
                      "quantization",
                      "quantization_config_file",
                      "skip_tokenizer_init",
                      "checkpoint_engine",
                      "update_weights_bucket_megabytes",
                      "layer_name_map",
                      "nnodes",
                      "n_gpus_per_node",
                      "use_preprocessed_multimodal_input"},
                     "it belongs to an engine beside the trainer; the model itself generates"));
  append(all, refuse(rollout, {"log_prob_micro_batch_size"},
                     "it is deprecated in verl; set log_prob_micro_batch_size_per_gpu"));
  append(all, refuse(rollout, {"log_prob_max_token_len_per_gpu"}, kFixedBatches));
  append(all, refuse(rollout, {"multi_turn", "agent"}, "a response is one turn of text"));
  append(all, refuse(rollout, {"trace", "profiler", "prometheus"}, "metrics go to trainer.logger"));
  append(all, refuse(rollout, {"skip", "skip_rollout", "skip_dump_dir"},
                     "every step generates its own rollouts"));
  append(all, refuse(rollout, {"enable_rollout_routing_replay"},
                     "models with experts are not built yet"));
  append(all, refuse(rollout, {"mtp"}, "multi-token prediction is not built"));
  return all;
}

Refusals ref_refusals() {
  const std::string ref = "actor_rollout_ref.ref";
  Refusals all = refuse(ref, {"model", "optim", "fsdp_config"},
                        "the reference is the model that the run starts from");
  append(all, refuse(ref, {"rollout_n"}, "set actor_rollout_ref.rollout.n"));
  append(all, refuse(ref, {"log_prob_micro_batch_size"},
                     "it is deprecated in verl; set log_prob_micro_batch_size_per_gpu"));
  append(all, refuse(ref, {"log_prob_max_token_len_per_gpu"}, kFixedBatches));
  append(all, refuse(ref, {"use_torch_compile"}, "there is one implementation of the model"));
  append(all, refuse(ref, {"profiler"}, "the timers are always on (timing_s/...)"));
  append(all, refuse(ref, {"router_replay"}, "models with experts are not built yet"));
  append(all, refuse(ref, {"load_weight"}, "weights are always read"));
  append(all, refuse(ref + ".megatron",
                     {"grad_offload",
                      "optimizer_offload",
                      "tensor_model_parallel_size",
                      "expert_model_parallel_size",
                      "expert_tensor_parallel_size",
                      "pipeline_model_parallel_size",
                      "virtual_pipeline_model_parallel_size",
                      "context_parallel_size",
                      "sequence_parallel",
                      "use_distributed_optimizer",
                      "use_dist_checkpointing",
                      "dist_checkpointing_path",
                      "dist_checkpointing_prefix",
                      "seed",
                      "override_ddp_config",
                      "override_transformer_config",
                      "override_mcore_model_config",
                      "use_mbridge",
                      "vanilla_mbridge",
                      "use_remove_padding",
                      "forward_only",
                      "dtype"},
                     "the reference shares actor_rollout_ref.actor.megatron"));
  return all;
}

}  // namespace

Options actor_options() {
  Options options = under("actor_rollout_ref",
                          {only_flag("hybrid_engine", true, "the ranks that train generate too"),
                           integer("nccl_timeout", 600,
                                   "seconds after which a collective that a rank does not join is "
                                   "an error; checkpoints do not count")
                               .at_least(1)});
  append(options, actor_rows());
  append(options, rollout_rows());
  append(options, ref_rows());
  return options;
}

Refusals actor_refusals() {
  Refusals all = policy_refusals();
  append(all, rollout_refusals());
  append(all, ref_refusals());
  return all;
}

}  // namespace muoncore::train
