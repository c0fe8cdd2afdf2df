// What wrap_model_chunks_with_layerwise_aware_ddp resolves, and what it refuses with a sentence
// that says what to change; a refused model is as it was.
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "muoncore/core/check.h"
#include "tests/parallel/small_net.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string refusal(const std::vector<ModelChunk>& chunks, const optim::OptimizerConfig& optimizer,
                    const DistributedDataParallelConfig& ddp = {}, ParallelGroups groups = {}) {
  std::vector<const void*> before;
  for (const auto& chunk : chunks)
    for (const auto& p : chunk.params) before.push_back(p.tensor.const_data_ptr());
  try {
    wrap_model_chunks_with_layerwise_aware_ddp(chunks, optimizer, ddp, groups);
  } catch (const Error& error) {
    size_t k = 0;
    for (const auto& chunk : chunks)
      for (const auto& p : chunk.params) EXPECT_EQ(before[k++], p.tensor.const_data_ptr());
    return error.what();
  }
  return "accepted";
}

TEST(Wrap, ResolvesMuonWithADistributedOptimizerAndSaysSo) {
  auto resolve = [](const std::string& optimizer, bool distributed, bool layer_wise) {
    DistributedDataParallelConfig ddp;
    ddp.use_distributed_optimizer = distributed;
    ddp.use_layer_wise_distributed_optimizer = layer_wise;
    return resolve_sharding(net_config(optimizer), ddp);
  };
  EXPECT_EQ(resolve("muon", true, false).sharding, Sharding::kLayerWiseDistributedOptimizer);
  EXPECT_THAT(resolve("muon", true, false).note, HasSubstr("cannot be orthogonalized"));
  EXPECT_EQ(resolve("muon", true, true).sharding, Sharding::kLayerWiseDistributedOptimizer);
  EXPECT_THAT(resolve("muon", true, true).note, IsEmpty());
  EXPECT_EQ(resolve("muon", false, true).sharding, Sharding::kLayerWiseDistributedOptimizer);
  EXPECT_THAT(resolve("muon", false, true).note, HasSubstr("no effect"));
  EXPECT_EQ(resolve("muon", false, false).sharding, Sharding::kReplicated);
  EXPECT_EQ(resolve("adam", true, false).sharding, Sharding::kDistributedOptimizer);
  EXPECT_EQ(resolve("adam", false, false).sharding, Sharding::kReplicated);
  EXPECT_THROW(resolve("adam", true, true), Error);
}

TEST(Wrap, RefusesAndNames) {
  const auto muon = net_config(), adam = net_config("adam");
  const SmallNet net;
  EXPECT_THAT(refusal({}, muon), HasSubstr("at least one parameter"));
  EXPECT_THAT(refusal({ModelChunk{}}, muon), HasSubstr("at least one parameter"));
  EXPECT_THAT(refusal({net.chunk(), net.chunk()}, muon), HasSubstr("'embed' is given twice"));
  EXPECT_THAT(refusal({SmallNet(at::kHalf).chunk()}, muon), HasSubstr("'embed' is fp16"));
  ModelChunk chunk = net.chunk();
  chunk.params[2].spec.shape = {32, 17};
  EXPECT_THAT(refusal({chunk}, muon), HasSubstr("'layers.0.qkv' has the shape [32, 16]"));
  chunk = net.chunk();
  chunk.params[1].spec.name = "again";
  chunk.params[1].tensor = chunk.params[7].tensor;
  EXPECT_THAT(refusal({chunk}, muon), HasSubstr("is the tensor of another parameter"));
  chunk = net.chunk();
  chunk.params[1].tensor = at::zeros({kWidth});
  EXPECT_THAT(refusal({chunk}, muon), HasSubstr("'layers.0.norm' requires no gradient"));
  chunk = net.chunk();
  chunk.params.resize(2);
  EXPECT_THAT(refusal({chunk}, muon), HasSubstr("no parameter of this model is a matrix"));
  EXPECT_THAT(refusal({chunk}, adam), HasSubstr("accepted"));
}

TEST(Wrap, RefusesWhatCannotWork) {
  const SmallNet net;
  DistributedDataParallelConfig ddp;
  ddp.use_distributed_optimizer = false;
  ddp.overlap_param_gather = true;
  EXPECT_THAT(refusal({net.chunk()}, net_config(), ddp), HasSubstr("overlap_param_gather needs"));
  ddp = {};
  ddp.bucket_size = 0;
  EXPECT_THAT(refusal({net.chunk()}, net_config(), ddp), HasSubstr("bucket_size"));
  auto bad = net_config();
  bad.muon_momentum = 1.5;
  EXPECT_THAT(refusal({net.chunk()}, bad), HasSubstr("muon_momentum"));
}

TEST(Wrap, RefusesATiedMatrixOfMuon) {
  ModelChunk chunk = SmallNet().chunk();
  chunk.params[2].shared_embedding = true;
  EXPECT_THAT(refusal({chunk}, net_config()), HasSubstr("'layers.0.qkv' is tied to another"));
}

TEST(Wrap, RefusesAWrappedModel) {
  SmallNet net;
  const WrappedModel first =
      wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, net_config(), {}, {});
  EXPECT_THAT(refusal({net.chunk()}, net_config()), HasSubstr("wrap a model once"));
}

// A model can be wrapped again once its first wrapping is gone; its values stay.
TEST(Wrap, LetsAModelGo) {
  SmallNet net;
  const auto before = values(net);
  {
    const WrappedModel first =
        wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, net_config(), {}, {});
  }
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(same_bytes(before[i], net.params()[i].tensor.detach()));
  at::AutoGradMode gradients_on(true);
  net.loss(0, 8, 0).backward();  // no hook of a dead schedule runs
  for (const auto& p : net.params()) p.tensor.mutable_grad().reset();
  EXPECT_EQ(refusal({net.chunk()}, net_config()), "accepted");
}

TEST(Wrap, RefusesGroupsThatAreMissing) {
  comm::run_ranks(2, [](comm::Group& world) {
    const SmallNet net;
    ModelChunk chunk = net.chunk();
    chunk.params[7].expert = true;
    EXPECT_THAT(refusal({chunk}, net_config(), {}, {.world = &world, .dp = &world}),
                HasSubstr("expert_dp"));
    chunk = net.chunk();
    chunk.params[0].shared_embedding = true;
    EXPECT_THAT(refusal({chunk}, net_config(), {}, {.world = &world, .pp = &world}),
                HasSubstr("the group embedding"));
    chunk = net.chunk();
    chunk.params[5].spec.partition_dim = 0;  // 37 elements
    EXPECT_THAT(refusal({chunk}, net_config(), {}, {.world = &world, .tp = &world}),
                HasSubstr("cannot be cut along dimension 0 over 2"));
  });
}

TEST(Wrap, RanksThatPlanDifferentlyEndWithAnErrorOnAll) {
  comm::run_ranks(3, [](comm::Group& world) {
    const SmallNet net(at::kFloat, world.rank() == 2 ? 1 : 2);
    EXPECT_THAT(refusal({net.chunk()}, net_config(), {}, dp_only(world)),
                HasSubstr("rank 2 of group 'world' has other parameters or layout than rank 0"));
  });
  comm::run_ranks(2, [](comm::Group& world) {
    const SmallNet net;
    DistributedDataParallelConfig ddp;
    ddp.bucket_size = 1000 + world.rank() * 1000;
    EXPECT_THAT(refusal({net.chunk()}, net_config(), ddp, dp_only(world)), HasSubstr("bucket"));
  });
}

}  // namespace
}  // namespace muoncore::parallel
