#include "muoncore/train/config_ranks.h"

#include <fmt/format.h>

#include "muoncore/train/config_checks.h"

namespace muoncore::train {
namespace {

// A key of a mapping of overrides, or the value beside it.
bool overridden(const YamlNode& overrides, const char* key, bool value) {
  const YamlNode* node = overrides.find(key);
  return node == nullptr || node->type == YamlType::kNull ? value : node->boolean;
}

std::string timeout_key(ConfigKind kind) {
  return kind == ConfigKind::kGrpo ? "actor_rollout_ref.nccl_timeout" : "trainer.nccl_timeout";
}

void check_count(const Config& config, const std::string& key, int64_t started, const char* what) {
  if (config.is_null(key) || config.integer(key) == started) return;
  fail_at(config, key,
          fmt::format("the launcher started {} {}; leave the key out, or start the run with as "
                      "many as it says",
                      started, what));
}

void check_rows(const Config& config, const std::string& key, int64_t rows, int64_t ranks) {
  if (rows < ranks)
    fail_at(config, key, fmt::format("there are {} ranks: each needs at least one row", ranks));
}

}  // namespace

parallel::DistributedDataParallelConfig ddp_config(const Config& config) {
  const std::string engine = config.engine_prefix() + ".";
  const std::string optim = config.optim_prefix() + ".";
  const YamlNode& ddp = config.node(engine + "override_ddp_config");
  const YamlNode& optimizer = config.node(optim + "override_optimizer_config");
  parallel::DistributedDataParallelConfig out;
  out.use_distributed_optimizer = overridden(ddp, "use_distributed_optimizer",
                                             config.flag(engine + "use_distributed_optimizer"));
  out.use_layer_wise_distributed_optimizer =
      overridden(optimizer, "use_layer_wise_distributed_optimizer",
                 config.flag(optim + "use_layer_wise_distributed_optimizer"));
  out.grad_reduce_in_fp32 = overridden(ddp, "grad_reduce_in_fp32", true);
  out.overlap_grad_reduce = overridden(ddp, "overlap_grad_reduce", false);
  out.overlap_param_gather = overridden(ddp, "overlap_param_gather", false);
  out.param_layout = config.text(engine + "param_layout") == "megatron"
                         ? parallel::LayoutKind::kMegatron
                         : parallel::LayoutKind::kBalanced;
  if (const YamlNode* size = ddp.find("bucket_size"); size && size->type != YamlType::kNull)
    out.bucket_size = size->integer;
  out.pad_buckets_for_high_nccl_busbw = overridden(ddp, "pad_buckets_for_high_nccl_busbw", false);
  out.average_gradients = false;
  return out;
}

std::chrono::seconds collective_timeout(const Config& config) {
  return std::chrono::seconds(config.integer(timeout_key(config.kind())));
}

void check_launch(const Config& config, const comm::LaunchEnv& env) {
  check_count(config, "trainer.nnodes", env.hosts(), "nodes");
  check_count(config, "trainer.n_gpus_per_node", env.local_world_size, "ranks per node");
  check_rows(config, "data.train_batch_size", config.integer("data.train_batch_size"),
             env.world_size);
  if (config.kind() != ConfigKind::kGrpo) return;
  const std::string mini = "actor_rollout_ref.actor.ppo_mini_batch_size";
  check_rows(config, mini, config.integer(mini) * config.integer("actor_rollout_ref.rollout.n"),
             env.world_size);
}

}  // namespace muoncore::train
