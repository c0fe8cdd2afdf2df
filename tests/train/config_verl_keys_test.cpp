// Every key that verl has (reference/verl.md 1.1, 1.2 and 3.1; verl's own YAML files) is declared
// or refused by name: none is "unknown". And verl's own optimizer block passes.
#include <gmock/gmock.h>

#include <sstream>

#include "config_fixture.h"
#include "muoncore/train/config_tables.h"

namespace muoncore::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct VerlKeys {
  ConfigKind kind;
  std::string prefix;  // with its dot
  std::string keys;    // separated by spaces
};

const char* kOptimKeys =
    "lr lr_warmup_steps_ratio total_training_steps weight_decay lr_warmup_steps betas clip_grad "
    "grad_clip optimizer "
    "lr_warmup_init lr_decay_steps lr_decay_style min_lr weight_decay_incr_style "
    "lr_wsd_decay_style "
    "lr_wsd_decay_steps use_checkpoint_opt_param_scheduler use_precision_aware_optimizer "
    "main_grads_dtype "
    "exp_avg_dtype exp_avg_sq_dtype use_layer_wise_distributed_optimizer "
    "use_layer_wise_param_layout muon_momentum "
    "muon_nesterov muon_split_qkv muon_scale_mode muon_coefficient_type muon_num_ns_steps "
    "muon_tp_mode "
    "muon_fp32_matmul_prec muon_extra_scale_factor muon_scalar_optimizer "
    "muon_match_adamw_update_rms "
    "override_optimizer_config";

const char* kEngineKeys =
    "param_offload grad_offload optimizer_offload offload tensor_model_parallel_size "
    "expert_model_parallel_size "
    "expert_tensor_parallel_size pipeline_model_parallel_size virtual_pipeline_model_parallel_size "
    "context_parallel_size sequence_parallel use_distributed_optimizer use_dist_checkpointing "
    "dist_checkpointing_path "
    "dist_checkpointing_prefix dist_ckpt_optim_fully_reshardable "
    "distrib_optim_fully_reshardable_mem_efficient "
    "dynamic_context_parallel max_seqlen_per_dp_cp_rank seed override_ddp_config "
    "override_transformer_config "
    "override_mcore_model_config use_mbridge vanilla_mbridge use_remove_padding "
    "pad_bshd_to_minibatch_max "
    "pad_to_length pad_to_length_bucket use_megatron_fsdp forward_only dtype router_replay qat "
    "entropy_from_logits_with_chunking entropy_from_logits_chunk_size";

constexpr ConfigKind kSft = ConfigKind::kSft, kGrpo = ConfigKind::kGrpo;

const std::vector<VerlKeys> kAllKeys = {
    {kGrpo, "actor_rollout_ref.actor.optim.", kOptimKeys},
    {kSft, "optim.", kOptimKeys},
    {kGrpo, "actor_rollout_ref.actor.megatron.", kEngineKeys},
    {kSft, "engine.", kEngineKeys},
    {kGrpo, "actor_rollout_ref.ref.megatron.",
     "param_offload tensor_model_parallel_size seed use_mbridge dtype"},
    {kGrpo, "actor_rollout_ref.", "hybrid_engine nccl_timeout model actor ref rollout"},
    {kGrpo, "actor_rollout_ref.actor.",
     "strategy rollout_n ppo_mini_batch_size ppo_micro_batch_size ppo_micro_batch_size_per_gpu "
     "use_dynamic_bsz "
     "ppo_max_token_len_per_gpu clip_ratio clip_ratio_low clip_ratio_high clip_ratio_c tau_pos "
     "tau_neg "
     "freeze_vision_tower policy_loss loss_agg_mode loss_scale_factor entropy_coeff "
     "calculate_entropy "
     "calculate_sum_pi_squared use_kl_loss kl_loss_coef kl_loss_type use_prefix_grouper "
     "use_torch_compile ppo_epochs "
     "shuffle data_loader_seed use_fused_kernels checkpoint optim megatron profiler "
     "router_replay qat "
     "entropy_from_logits_with_chunking entropy_from_logits_chunk_size fsdp_config"},
    {kGrpo, "actor_rollout_ref.actor.policy_loss.",
     "loss_mode clip_cov_ratio clip_cov_lb clip_cov_ub kl_cov_ratio ppo_kl_coef dro_beta"},
    {kGrpo, "actor_rollout_ref.actor.checkpoint.",
     "save_contents load_contents async_save strict mbridge_config"},
    {kGrpo, "actor_rollout_ref.model.",
     "path hf_config_path tokenizer_path use_shm trust_remote_code custom_chat_template "
     "external_lib override_config "
     "enable_gradient_checkpointing enable_activation_offload use_remove_padding "
     "truncate_padding lora_rank "
     "lora_alpha target_modules exclude_modules lora_adapter_path use_liger use_fused_kernels "
     "fused_kernel_options "
     "tiled_mlp mtp lora"},
    {kGrpo, "actor_rollout_ref.rollout.",
     "name mode nnodes n_gpus_per_node n temperature top_k top_p seed do_sample prompt_length "
     "response_length dtype "
     "gpu_memory_utilization ignore_eos enforce_eager cudagraph_capture_sizes free_cache_engine "
     "tensor_model_parallel_size data_parallel_size expert_parallel_size "
     "pipeline_model_parallel_size "
     "max_num_batched_tokens max_model_len max_num_seqs enable_chunked_prefill "
     "enable_prefix_caching logprobs_mode "
     "scheduling_policy load_format layered_summon log_prob_micro_batch_size "
     "log_prob_micro_batch_size_per_gpu "
     "log_prob_use_dynamic_bsz log_prob_max_token_len_per_gpu disable_log_stats over_sample_rate "
     "multi_stage_wake_up engine_kwargs val_kwargs multi_turn calculate_log_probs "
     "full_determinism agent "
     "checkpoint_engine trace skip skip_tokenizer_init use_preprocessed_multimodal_input "
     "enable_rollout_routing_replay profiler prometheus quantization quantization_config_file "
     "mtp layer_name_map"},
    {kGrpo, "actor_rollout_ref.rollout.val_kwargs.", "n do_sample temperature top_k top_p"},
    {kGrpo, "actor_rollout_ref.ref.",
     "rollout_n strategy use_torch_compile log_prob_micro_batch_size "
     "log_prob_micro_batch_size_per_gpu "
     "log_prob_use_dynamic_bsz log_prob_max_token_len_per_gpu megatron profiler router_replay"},
    {kGrpo, "algorithm.",
     "adv_estimator gamma lam norm_adv_by_std_in_grpo use_kl_in_reward kl_penalty kl_ctrl "
     "filter_groups "
     "rollout_correction use_pf_ppo pf_ppo"},
    {kGrpo, "algorithm.kl_ctrl.", "type kl_coef horizon target_kl"},
    {kGrpo, "algorithm.filter_groups.",
     "enable metric max_num_gen_batches max_inflight_gen_batches"},
    {kGrpo, "data.",
     "tokenizer use_shm train_files val_files train_max_samples val_max_samples prompt_key "
     "reward_fn_key "
     "max_prompt_length max_response_length train_batch_size gen_batch_size val_batch_size "
     "tool_config_path "
     "function_tool_path return_raw_input_ids return_raw_chat return_full_prompt shuffle seed "
     "dataloader_num_workers "
     "image_patch_size validation_shuffle filter_overlong_prompts "
     "filter_overlong_prompts_workers truncation "
     "image_key video_key audio_key trust_remote_code custom_cls sampler datagen "
     "return_multi_modal_inputs "
     "apply_chat_template_kwargs mm_processor_kwargs"},
    {kGrpo, "trainer.",
     "total_epochs total_training_steps project_name experiment_name logger nnodes "
     "n_gpus_per_node save_freq test_freq "
     "val_before_train val_only resume_mode resume_from_path default_local_dir default_hdfs_dir "
     "del_local_ckpt_after_load max_actor_ckpt_to_keep max_critic_ckpt_to_keep critic_warmup "
     "balance_batch "
     "balance_keep_minibatch log_val_generations rollout_data_dir validation_data_dir device "
     "use_v1 v1 "
     "esi_redundant_time checkpoint_callback_class ray_wait_register_center_timeout"},
    {kGrpo, "",
     "actor_rollout_ref critic data reward algorithm trainer global_profiler distillation "
     "transfer_queue skip "
     "ray_kwargs reward_model reward_manager custom_reward_function sandbox_fusion defaults"},
    {kSft, "", "model engine optim profiler data checkpoint trainer defaults"},
    {kSft, "data.",
     "train_batch_size micro_batch_size_per_gpu max_token_len_per_gpu use_dynamic_bsz "
     "train_files val_files "
     "train_max_samples val_max_samples messages_key tools_key enable_thinking_key "
     "enable_thinking_default pad_mode "
     "max_length truncation balance_dp_token custom_cls use_shm apply_chat_template_kwargs "
     "num_workers "
     "ignore_input_ids_mismatch"},
    {kSft, "checkpoint.", "save_contents load_contents"},
    {kSft, "trainer.",
     "default_local_dir default_hdfs_dir project_name experiment_name total_epochs "
     "total_training_steps logger seed "
     "save_freq test_freq max_ckpt_to_keep balance_batch resume_mode resume_from_path device "
     "nnodes n_gpus_per_node "
     "profile_interval"},
};

TEST(VerlKeys, AreDeclaredOrRefusedByName) {
  int count = 0;
  for (const VerlKeys& group : kAllKeys) {
    std::istringstream keys(group.keys);
    for (std::string key; keys >> key; ++count) {
      const std::string path = group.prefix + key;
      YamlNode tree = YamlNode::map({});
      apply_override(tree, path + "=null");
      std::string message = error_of([&] { option_table(group.kind).resolve(tree); });
      EXPECT_THAT(message, Not(HasSubstr("unknown key"))) << path;
    }
  }
  EXPECT_GT(count, 300);
}

// verl's trainer/config/optim/megatron.yaml, key by key as its file has it, in a file of ours.
const char* kVerlOptim = R"(optim:
  _target_: verl.workers.config.McoreOptimizerConfig
  lr: 1e-3
  lr_warmup_steps_ratio: 0.0
  total_training_steps: -1
  weight_decay: 0.01
  lr_warmup_steps: -1
  betas: [0.9, 0.999]
  clip_grad: 1.0
  optimizer: adam
  lr_warmup_init: 0.0
  lr_decay_steps: null
  lr_decay_style: constant
  min_lr: 0.0
  weight_decay_incr_style: constant
  lr_wsd_decay_style: exponential
  lr_wsd_decay_steps: null
  use_checkpoint_opt_param_scheduler: False
  use_precision_aware_optimizer: False
  main_grads_dtype: fp32
  exp_avg_dtype: fp32
  exp_avg_sq_dtype: fp32
  use_layer_wise_distributed_optimizer: False
  muon_momentum: 0.95
  muon_nesterov: False
  muon_split_qkv: True
  muon_scale_mode: spectral
  muon_coefficient_type: quintic
  muon_num_ns_steps: 5
  muon_tp_mode: blockwise
  muon_fp32_matmul_prec: medium
  muon_extra_scale_factor: 1.0
  muon_scalar_optimizer: adam
  muon_match_adamw_update_rms: False
  override_optimizer_config: {}
)";

class VerlOptimizer : public ConfigFiles {};

TEST_F(VerlOptimizer, FileIsAcceptedAsItIsForBothOptimizers) {
  EXPECT_EQ(load(ConfigKind::kSft, kVerlOptim).text("optim.muon_tp_mode"), "blockwise");
  EXPECT_NO_THROW(load(ConfigKind::kSft, kVerlOptim, {"optim.optimizer=muon"}));
  EXPECT_NO_THROW(load(ConfigKind::kSft, kVerlOptim,
                       {"optim.optimizer=muon", "optim.muon_match_adamw_update_rms=True"}));
}

// What verl's file says and our defaults agree but for muon_tp_mode: the table's verl_default is
// the evidence.
TEST_F(VerlOptimizer, OurDefaultsAreTheFilesButForTheTpMode) {
  Config ours = load_config(ConfigKind::kSft, "", {});
  Config verls = load(ConfigKind::kSft, kVerlOptim);
  for (const auto& [path, value] : ours.values()) {
    bool differs = path == "optim.muon_tp_mode" || path == "optim._target_";
    EXPECT_EQ(value.same_value(verls.node(path)), !differs) << path;
  }
}

}  // namespace
}  // namespace muoncore::train
