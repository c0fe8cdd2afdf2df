// From keys to the data-parallel settings, and what the launcher must have started.
#include "muoncore/train/config_ranks.h"

#include <gmock/gmock.h>

#include "muoncore/optim/optimizer_config.h"
#include "muoncore/parallel/buffer_plan.h"
#include "muoncore/train/config_derived.h"
#include "tests/train/config_fixture.h"

namespace muoncore::train {
namespace {

using ::testing::HasSubstr;

class ConfigRanks : public ConfigFiles {
 protected:
  parallel::DistributedDataParallelConfig ddp(const std::vector<std::string>& overrides) const {
    return ddp_config(load(ConfigKind::kSft, "", overrides));
  }
  parallel::ResolvedSharding sharding(const std::vector<std::string>& overrides) const {
    const Config config = load(ConfigKind::kSft, "", overrides);
    return parallel::resolve_sharding(optimizer_config(config, 10), ddp_config(config));
  }
  std::string launch_error(ConfigKind kind, const std::vector<std::string>& overrides,
                           int64_t ranks, int64_t local) const {
    const Config config = load_config(kind, "", overrides);
    comm::LaunchEnv env;
    env.world_size = ranks;
    env.local_world_size = local;
    return error_of([&] { check_launch(config, env); });
  }
};

TEST_F(ConfigRanks, DefaultsSumGradientsOfShards) {
  const auto d = ddp({});
  EXPECT_TRUE(d.use_distributed_optimizer);
  EXPECT_FALSE(d.use_layer_wise_distributed_optimizer);
  EXPECT_TRUE(d.grad_reduce_in_fp32);
  EXPECT_FALSE(d.overlap_grad_reduce || d.overlap_param_gather);
  EXPECT_FALSE(d.average_gradients);
  EXPECT_FALSE(d.bucket_size.has_value());
  EXPECT_EQ(d.param_layout, parallel::LayoutKind::kBalanced);
}

TEST_F(ConfigRanks, OverridesHaveTheLastWord) {
  const auto d = ddp({"engine.use_distributed_optimizer=true",
                      "engine.override_ddp_config.use_distributed_optimizer=false",
                      "engine.override_ddp_config.overlap_grad_reduce=true",
                      "engine.override_ddp_config.grad_reduce_in_fp32=false",
                      "engine.override_ddp_config.bucket_size=4096", "engine.param_layout=megatron",
                      "optim.optimizer=muon", "optim.use_layer_wise_distributed_optimizer=false",
                      "optim.override_optimizer_config.use_layer_wise_distributed_optimizer=true"});
  EXPECT_FALSE(d.use_distributed_optimizer);
  EXPECT_TRUE(d.overlap_grad_reduce);
  EXPECT_FALSE(d.grad_reduce_in_fp32);
  EXPECT_EQ(d.bucket_size, 4096);
  EXPECT_EQ(d.param_layout, parallel::LayoutKind::kMegatron);
  EXPECT_TRUE(d.use_layer_wise_distributed_optimizer);
}

TEST_F(ConfigRanks, MuonWithShardedGradientsIsLayerWiseAndSaysSo) {
  const auto muon = sharding({"optim.optimizer=muon"});
  EXPECT_EQ(muon.sharding, parallel::Sharding::kLayerWiseDistributedOptimizer);
  EXPECT_THAT(muon.note, HasSubstr("layer"));
  const auto asked =
      sharding({"optim.optimizer=muon", "optim.use_layer_wise_distributed_optimizer=true"});
  EXPECT_EQ(asked.sharding, parallel::Sharding::kLayerWiseDistributedOptimizer);
  EXPECT_EQ(asked.note, "");
  EXPECT_EQ(sharding({"optim.optimizer=adam"}).sharding, parallel::Sharding::kDistributedOptimizer);
  EXPECT_EQ(sharding({"optim.optimizer=muon", "engine.use_distributed_optimizer=false"}).sharding,
            parallel::Sharding::kReplicated);
}

TEST_F(ConfigRanks, TimeOutsHaveTheirKeys) {
  EXPECT_EQ(collective_timeout(load(ConfigKind::kGrpo, "")).count(), 600);
  EXPECT_EQ(
      collective_timeout(load(ConfigKind::kGrpo, "", {"actor_rollout_ref.nccl_timeout=7"})).count(),
      7);
  EXPECT_EQ(collective_timeout(load(ConfigKind::kSft, "", {"trainer.nccl_timeout=8"})).count(), 8);
}

TEST_F(ConfigRanks, CountsThatAreSetMustBeTheLaunchers) {
  EXPECT_EQ(launch_error(ConfigKind::kSft, {}, 4, 2), "no error");
  EXPECT_EQ(launch_error(ConfigKind::kSft, {"trainer.nnodes=2", "trainer.n_gpus_per_node=2"}, 4, 2),
            "no error");
  EXPECT_THAT(launch_error(ConfigKind::kGrpo, {"trainer.n_gpus_per_node=8"}, 4, 4),
              HasSubstr("'trainer.n_gpus_per_node': value 8: the launcher started 4 ranks"));
  EXPECT_THAT(launch_error(ConfigKind::kSft, {"trainer.nnodes=1"}, 4, 2),
              HasSubstr("'trainer.nnodes': value 1: the launcher started 2 nodes"));
}

TEST_F(ConfigRanks, EveryRankNeedsARow) {
  const std::vector<std::string> keys = {"data.train_batch_size=4",
                                         "actor_rollout_ref.actor.ppo_mini_batch_size=2",
                                         "actor_rollout_ref.rollout.n=2"};
  EXPECT_EQ(launch_error(ConfigKind::kGrpo, keys, 4, 4), "no error");
  EXPECT_THAT(launch_error(ConfigKind::kGrpo, keys, 5, 5),
              HasSubstr("'data.train_batch_size': value 4: there are 5 ranks"));
  EXPECT_THAT(
      launch_error(ConfigKind::kGrpo,
                   {"data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=2",
                    "actor_rollout_ref.rollout.n=2"},
                   5, 5),
      HasSubstr("ppo_mini_batch_size': value 2: there are 5 ranks"));
}

}  // namespace
}  // namespace muoncore::train
