// Tensor-parallel Muon in processes of their own, over sockets: this program, started again.
#include <gtest/gtest.h>

#include "muoncore/comm/launch.h"
#include "muoncore/comm/spawn.h"
#include "muoncore/comm/world.h"
#include "tests/parallel/tensor_parallel_training.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's

// What each process does.
TEST(TensorParallelGloo, DISABLED_OneOfTwoRanks) {
  const comm::LaunchEnv env = comm::read_launch_env();
  ASSERT_EQ(env.world_size, 2);
  at::set_num_threads(1);
  const Training training{.specs = transformer_layer(), .options = options_of(), .steps = 2};
  const Trained expected = one_process(training);
  comm::World world(env, {});
  world.run([&] {
    for (TpMode mode : {TpMode::kDuplicated, TpMode::kDistributed, TpMode::kLayerSharded}) {
      const Trained own = one_rank(training, world.group(), {.mode = mode});
      for (size_t k = 0; k < training.specs.size(); ++k) {
        const ParamSpec& spec = training.specs[k];
        const at::Tensor shard = shard_of(expected.params[k], spec, 2, world.rank());
        EXPECT_LE(of_bound(own.params[k], shard), 1.0) << to_string(mode) << ", " << spec.name;
        if (mode == TpMode::kDuplicated) {
          EXPECT_TRUE(same_bytes(own.params[k], shard)) << spec.name;
        }
      }
    }
  });
}

TEST(TensorParallelGloo, TwoProcessesEqualOne) {
  const std::string program = comm::this_program();
  EXPECT_EQ(comm::spawn_ranks(2, program,
                              {program, "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                               "--gtest_filter=TensorParallelGloo.DISABLED_OneOfTwoRanks"}),
            0);
}

}  // namespace
}  // namespace muoncore::parallel
