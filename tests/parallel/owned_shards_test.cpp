// Who owns what: every element exactly once, whatever the number of ranks; ranks that own nothing;
// and buffers that keep their views.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <mutex>

#include "muoncore/core/check.h"
#include "muoncore/parallel/plan_bytes.h"
#include "tests/parallel/small_net.h"
#include "tests/support/error_of.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's
using ::testing::HasSubstr;

ModelChunk bag(const std::vector<std::pair<ParamRole, std::vector<int64_t>>>& params,
               at::ScalarType dtype = at::kFloat) {
  ModelChunk chunk;
  for (const auto& [role, shape] : params) {
    const std::string name = fmt::format("p{}", chunk.params.size());
    ParamSpec spec;
    spec.name = name;
    spec.role = role;
    spec.shape = shape;
    chunk.params.push_back(
        {.spec = spec, .tensor = random_tensor(shape, name, 0.5, dtype).set_requires_grad(true)});
  }
  return chunk;
}

// Gap 6: the shards of all ranks cover every element exactly once.
TEST(OwnedShards, CoverEveryElementOnce) {
  for (int64_t ranks : {1, 2, 3, 4, 8})
    for (auto layout : {LayoutKind::kBalanced, LayoutKind::kMegatron})
      for (std::optional<int64_t> bucket : {std::optional<int64_t>(), {600}})
        for (const std::string optimizer : {"muon", "adam"}) {
          std::mutex mutex;
          std::vector<std::vector<int>> owners;
          comm::run_ranks(ranks, [&](comm::Group& world) {
            SmallNet net;
            DistributedDataParallelConfig ddp = sums();
            ddp.param_layout = layout;
            ddp.bucket_size = bucket;
            const ModelChunk chunk = net.chunk();
            WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp(
                {chunk}, net_config(optimizer), ddp, dp_only(world));
            for (size_t i = 0; i < chunk.params.size(); ++i)
              model.chunks[0]->add_gradient(i, at::ones(chunk.params[i].tensor.sizes()));
            model.optimizer->step();
            const std::lock_guard lock(mutex);
            if (owners.empty())
              for (const auto& p : chunk.params) owners.emplace_back(p.tensor.numel(), 0);
            for (const auto& entry : model.optimizer->local_state())
              if (entry.what == "momentum_buffer" || entry.what == "exp_avg")
                for (int64_t e = entry.piece.begin; e < entry.piece.end; ++e)
                  ++owners[entry.piece.param][e];
          });
          for (const auto& elements : owners)
            EXPECT_THAT(elements, ::testing::Each(1)) << ranks << to_string(layout) << optimizer;
        }
}

// Fewer matrices than ranks, odd shapes, [1, N], a rank that owns nothing: one process's weights.
TEST(OwnedShards, FewAndOddParametersOnManyRanks) {
  const std::vector<std::vector<std::pair<ParamRole, std::vector<int64_t>>>> bags{
      {{ParamRole::kMatrix, {5, 3}}},
      {{ParamRole::kMatrix, {64, 64}}, {ParamRole::kBias, {1}}},
      {{ParamRole::kMatrix, {7, 13}}, {ParamRole::kMatrix, {1, 9}}, {ParamRole::kNorm, {3}}},
      {{ParamRole::kEmbedding, {33, 2}}, {ParamRole::kMatrix, {3, 4, 5}}}};
  for (const auto& shapes : bags)
    for (auto dtype : {at::kFloat, at::kBFloat16})
      for (int64_t ranks : {2, 5}) {
        auto gradient = [&](const ChunkParam& p, int step) {
          return random_tensor(p.spec.shape, fmt::format("{}/{}", p.spec.name, step), 0.3, dtype);
        };
        ModelChunk alone = bag(shapes, dtype);
        std::vector<optim::NamedParam> params;
        for (const auto& p : alone.params) params.push_back({p.spec, p.tensor});
        auto optimizer = optim::build_optimizer(params, net_config());
        for (int step = 0; step < 3; ++step) {
          for (const auto& p : alone.params) p.tensor.mutable_grad() = gradient(p, step);
          optimizer->step();
        }
        comm::run_ranks(ranks, [&](comm::Group& world) {
          ModelChunk chunk = bag(shapes, dtype);
          DistributedDataParallelConfig ddp;  // the mean of equal gradients
          ddp.overlap_param_gather = true;
          WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({chunk}, net_config(),
                                                                          ddp, dp_only(world));
          for (int step = 0; step < 3; ++step) {
            model.optimizer->zero_grad();
            model.wait_params();
            for (size_t i = 0; i < chunk.params.size(); ++i)
              model.chunks[0]->add_gradient(i, gradient(chunk.params[i], step));
            model.optimizer->step();
          }
          for (size_t i = 0; i < chunk.params.size(); ++i) {
            model.chunks[0]->wait_param(i);
            EXPECT_LE(max_difference(chunk.params[i].tensor, alone.params[i].tensor),
                      dtype == at::kFloat ? 2e-6 : 4e-3)
                << ranks << " ranks, " << chunk.params[i].spec.name;
          }
        });
      }
}

// Gap 7: matrices and vectors of several chunks share no bucket, and both are complete on all ranks
// after a step, whichever comes first in a chunk.
TEST(OwnedShards, MixedChunksInBothOrders) {
  using Shapes = std::vector<std::pair<ParamRole, std::vector<int64_t>>>;
  const Shapes norm_first{{ParamRole::kNorm, {48}}, {ParamRole::kMatrix, {24, 48}}},
      matrix_first{{ParamRole::kMatrix, {24, 48}}, {ParamRole::kNorm, {48}}};
  for (const auto& [first, second] :
       {std::pair{norm_first, matrix_first}, std::pair{matrix_first, norm_first}})
    for (bool overlap : {false, true})
      comm::run_ranks(2, [&, first = first, second = second](comm::Group& world) {
        std::vector<ModelChunk> chunks{bag(first), bag(second)};
        for (auto& p : chunks[1].params) p.spec.name = "second." + p.spec.name;
        DistributedDataParallelConfig ddp = sums();
        ddp.overlap_grad_reduce = ddp.overlap_param_gather = overlap;
        WrappedModel model =
            wrap_model_chunks_with_layerwise_aware_ddp(chunks, net_config(), ddp, dp_only(world));
        std::vector<at::Tensor> before;
        for (size_t c = 0; c < 2; ++c)
          for (size_t i = 0; i < 2; ++i) {
            before.push_back(chunks[c].params[i].tensor.detach().clone());
            model.chunks[c]->add_gradient(i, at::ones(chunks[c].params[i].tensor.sizes()));
          }
        model.optimizer->step();
        model.wait_params();
        check_replicas(chunks, dp_only(world));
        for (size_t k = 0; k < 4; ++k)
          EXPECT_GT(max_difference(before[k], chunks[k / 2].params[k % 2].tensor), 1e-4) << k;
      });
}

TEST(Buffers, AnAliasThatWasDroppedIsNamed) {
  comm::run_ranks(1, [](comm::Group& world) {
    at::AutoGradMode gradients_on(true);
    SmallNet net;
    WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, net_config(),
                                                                    sums(), dp_only(world));
    net.params()[3].tensor.mutable_grad().reset();  // as torch's zero_grad does
    net.loss(0, 8, 0).backward();
    EXPECT_THAT(error_of([&] { model.optimizer->step(); }),
                HasSubstr("the gradient of 'layers.0.proj' was replaced"));
  });
  comm::run_ranks(1, [](comm::Group& world) {
    SmallNet net;
    WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, net_config(),
                                                                    sums(), dp_only(world));
    const at::Tensor weight = net.params()[2].tensor;
    {
      at::NoGradGuard no_grad;
      at::Tensor(weight).set_data(weight.detach().clone());
    }
    EXPECT_THAT(error_of([&] { model.optimizer->step(); }),
                HasSubstr("the data of 'layers.0.qkv' was replaced"));
  });
}

TEST(Buffers, ASecondBackwardUnderSyncIsNamed) {
  comm::run_ranks(1, [](comm::Group& world) {
    at::AutoGradMode gradients_on(true);
    SmallNet net;
    DistributedDataParallelConfig ddp = sums();
    ddp.overlap_grad_reduce = true;
    WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, net_config(),
                                                                    ddp, dp_only(world));
    net.loss(0, 4, 0).backward();
    EXPECT_THAT(error_of([&] { net.loss(4, 8, 0).backward(); }), HasSubstr("under no_sync"));
  });
  comm::run_ranks(1, [](comm::Group& world) {
    at::AutoGradMode gradients_on(true);
    SmallNet net;
    WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, net_config(),
                                                                    sums(), dp_only(world));
    net.loss(0, 8, 0).backward();
    model.optimizer->step();
    EXPECT_THAT(error_of([&] { net.loss(0, 8, 1).backward(); }), HasSubstr("call zero_grad"));
  });
}

// The bytes of optimizer state that a rank holds, by the formula: Muon 4 per element it owns, AdamW
// 8, a master 4 where parameters are bf16.
TEST(OwnedShards, StateBytesAreTheFormulaToTheByte) {
  for (auto dtype : {at::kFloat, at::kBFloat16})
    for (auto layout : {LayoutKind::kBalanced, LayoutKind::kMegatron})
      for (int64_t ranks : {1, 2, 4}) {
        std::mutex mutex;
        int64_t state = 0, masters = 0;
        comm::run_ranks(ranks, [&](comm::Group& world) {
          SmallNet net(dtype);
          const ModelChunk chunk = net.chunk();
          DistributedDataParallelConfig ddp;
          ddp.param_layout = layout;
          WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({chunk}, net_config(),
                                                                          ddp, dp_only(world));
          for (size_t i = 0; i < chunk.params.size(); ++i)
            model.chunks[0]->add_gradient(i, at::ones(chunk.params[i].tensor.sizes()));
          model.optimizer->step();
          RankBytes formula;
          for (const auto& plan : model.plans[0]) {
            ParamLayout whole_or_cut;
            (plan.name.ends_with("whole") ? whole_or_cut.whole : whole_or_cut.cut) = plan.layout;
            formula += rank_bytes(whole_or_cut, world.rank(),
                                  {.param = dtype == at::kFloat ? 4 : 2, .grad = 4});
          }
          const auto bytes = model.optimizer->state_bytes_by_optimizer();
          EXPECT_EQ(bytes.at("muon"), formula.momentum);
          EXPECT_EQ(bytes.at("adam"), formula.exp_avg + formula.exp_avg_sq);
          EXPECT_EQ(model.optimizer->master_bytes(), formula.masters);
          const std::lock_guard lock(mutex);
          state += model.optimizer->state_bytes();
          masters += model.optimizer->master_bytes();
        });
        SmallNet net(dtype);
        int64_t expected = 0, elements = 0;
        for (const auto& p : net.params()) {
          const bool muon = p.spec.role == ParamRole::kMatrix;
          expected += (muon ? 4 : 8) * p.tensor.numel();
          elements += p.tensor.numel();
        }
        EXPECT_EQ(state, expected);
        EXPECT_EQ(masters, dtype == at::kFloat ? 0 : 4 * elements);
      }
}

}  // namespace
}  // namespace muoncore::parallel
