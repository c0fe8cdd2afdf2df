// One exact gradient norm for every mesh; and what a gradient that is not finite, huge or tiny does
// on many ranks.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "muoncore/comm/mesh.h"
#include "muoncore/parallel/tensor_parallel.h"
#include "tests/parallel/small_net.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's

ParamSpec spec_of(const std::string& name, ParamRole role, std::vector<int64_t> shape,
                  int partition_dim = -1) {
  ParamSpec spec;
  spec.name = name;
  spec.role = role;
  spec.shape = std::move(shape);
  spec.partition_dim = partition_dim;
  return spec;
}

// A bag of parameters with experts: what one rank of a mesh holds of a model of 4 experts and a
// tied embedding on the first and the last stage.
constexpr int64_t kExperts = 4;

std::vector<ParamSpec> dense_specs(int64_t stage) {
  const std::string at = fmt::format("stage{}.", stage);
  return {spec_of(at + "norm", ParamRole::kNorm, {24}),
          spec_of(at + "in", ParamRole::kMatrix, {32, 24}, 0),
          spec_of(at + "out", ParamRole::kMatrix, {24, 32}, 1),
          spec_of(at + "whole", ParamRole::kMatrix, {7, 24})};
}

ParamSpec expert_spec(int64_t stage, int64_t expert) {
  return spec_of(fmt::format("stage{}.expert{}", stage, expert), ParamRole::kMatrix, {10, 24});
}

const ParamSpec kEmbedding = spec_of("embedding", ParamRole::kEmbedding, {30, 24}, 0);

int64_t elements_of_the_model(int64_t stages) {
  int64_t n = 30 * 24;
  for (int64_t stage = 0; stage < stages; ++stage) {
    for (const auto& spec : dense_specs(stage)) n += c10::multiply_integers(spec.shape);
    n += kExperts * 10 * 24;
  }
  return n;
}

ChunkParam chunk_param(const ParamSpec& spec, int64_t tp) {
  const auto shape = spec.shape.size() == 2 ? shard_shape(spec, tp) : spec.shape;
  return {.spec = spec, .tensor = at::full(shape, 0.1f).set_requires_grad(true)};
}

ModelChunk bag(const comm::Mesh& mesh) {
  const int64_t tp = mesh.tp().size(), pp = mesh.pp().size(), stage = mesh.pp().rank();
  ModelChunk chunk;
  if (stage == 0 || stage == pp - 1) {
    chunk.params.push_back(chunk_param(kEmbedding, tp));
    chunk.params.back().shared_embedding = pp > 1;
  }
  for (const auto& spec : dense_specs(stage)) chunk.params.push_back(chunk_param(spec, tp));
  const int64_t share = kExperts / mesh.ep().size();
  for (int64_t e = 0; e < share; ++e) {
    chunk.params.push_back(chunk_param(expert_spec(stage, mesh.ep().rank() * share + e), 1));
    chunk.params.back().expert = true;
  }
  return chunk;
}

// Gap 4: all-ones gradients give exactly sqrt(number of logical parameters), and exactly the clip
// coefficient, on every mesh; also where dp is 1 and experts have more than one replica.
TEST(GradientNorm, AllOnesOnEveryMesh) {
  struct Case {
    int64_t world;
    comm::MeshSizes sizes;
  };
  const std::vector<Case> cases{{1, {}},
                                {2, {}},
                                {4, {}},
                                {2, {.tp = 2}},
                                {4, {.tp = 2}},
                                {2, {.ep = 2}},
                                {4, {.ep = 2}},
                                {4, {.tp = 2, .ep = 2}},
                                {2, {.pp = 2}},
                                {4, {.pp = 2}},
                                {4, {.cp = 2}},
                                {2, {.tp = 2, .ep = 1}},
                                {8, {.tp = 2, .ep = 2, .pp = 2}}};
  for (const auto& [world_size, sizes] : cases)
    for (bool distributed : {true, false})
      comm::run_ranks(world_size, [&, sizes = sizes](comm::Group&, comm::GroupFactory& factory) {
        const comm::Mesh mesh(factory, sizes);
        ParallelGroups groups = groups_of(mesh);
        // first and last stage are the same rank's here, or all of two stages
        if (mesh.pp().size() == 2) groups.embedding = &mesh.pp();
        DistributedDataParallelConfig ddp;
        ddp.use_distributed_optimizer = distributed;
        const ModelChunk chunk = bag(mesh);
        WrappedModel model =
            wrap_model_chunks_with_layerwise_aware_ddp({chunk}, net_config(), ddp, groups);
        for (size_t i = 0; i < chunk.params.size(); ++i) {
          at::Tensor ones = at::ones(chunk.params[i].tensor.sizes());
          // each stage adds half of a tied embedding's gradient; experts see a mean over all dp
          if (chunk.params[i].shared_embedding) ones.mul_(0.5);
          if (chunk.params[i].expert)
            ones.mul_(static_cast<double>(groups.dp->size()) /
                      static_cast<double>(groups.expert_dp->size()));
          model.chunks[0]->add_gradient(i, ones);
        }
        const optim::StepResult result = model.optimizer->step();
        const double norm = std::sqrt(static_cast<double>(elements_of_the_model(mesh.pp().size())));
        EXPECT_EQ(result.grad_norm, norm) << world_size << " tp " << sizes.tp << " ep " << sizes.ep;
        EXPECT_EQ(result.clip_coefficient, 1.0 / (norm + 1e-6));
        EXPECT_EQ(result.ns_calls, mesh.pp().size() * (3 + kExperts));
        check_replicas({chunk}, groups);
      });
}

// Every rank's state as bytes: momenta, moments, masters and weights.
std::vector<at::Tensor> state_of(const SmallNet& net, WrappedModel& model) {
  std::vector<at::Tensor> out = values(net);
  for (const auto& entry : model.optimizer->local_state()) out.push_back(entry.tensor.clone());
  return out;
}

// One NaN, or infinity, on one rank skips the step on all; nothing is touched, and the next good
// step is what it would have been.
TEST(GradientNorm, ABadGradientOnOneRankSkipsTheStepOnAll) {
  for (float bad : {std::nanf(""), -std::numeric_limits<float>::infinity()})
    for (bool overlap : {false, true}) {
      NetRun good{.steps = 3};
      good.ddp.overlap_grad_reduce = good.ddp.overlap_param_gather = overlap;
      const NetResult expected = train_on(4, good);
      comm::run_ranks(4, [&](comm::Group& world) {
        at::AutoGradMode gradients_on(true);
        SmallNet net;
        WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp(
            {net.chunk()}, good.optimizer, good.ddp, dp_only(world));
        for (int step = 0; step < 3; ++step) {
          model.wait_params();
          const auto before = state_of(net, model);
          model.optimizer->zero_grad();
          if (world.rank() == 2)
            net.params()[7].tensor.mutable_grad().view(-1)[5] = bad;  // of a matrix of Muon's
          backward_share(net, model, good, world, step);
          const optim::StepResult skipped = model.optimizer->step();
          EXPECT_TRUE(skipped.skipped);
          EXPECT_EQ(std::isnan(skipped.grad_norm), std::isnan(bad));
          EXPECT_EQ(skipped.clip_coefficient, 0.0);
          const auto after = state_of(net, model);
          ASSERT_EQ(before.size(), after.size());
          for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same_bytes(before[i], after[i]));
          model.optimizer->zero_grad();
          backward_share(net, model, good, world, step);
          EXPECT_FALSE(model.optimizer->step().skipped);
        }
        model.wait_params();
        if (world.rank() > 0) return;
        for (size_t i = 0; i < expected.params.size(); ++i)
          EXPECT_TRUE(same_bytes(net.params()[i].tensor.detach(), expected.params[i])) << i;
      });
    }
}

// Gap 9 on many ranks: one huge gradient clips all others to almost nothing, and Muon's update
// still has its size; so has one of 1e-9 alone. An all-zero gradient gives no update and no NaN.
TEST(GradientNorm, HugeTinyAndZeroGradients) {
  for (double scale : {1e30, 1e-9, 0.0}) {
    NetRun run{.steps = 1};
    run.optimizer.weight_decay = 0.0;
    run.before_step = [&](const SmallNet& net, WrappedModel&, int64_t rank, int) {
      for (const auto& param : net.params())
        param.tensor.mutable_grad().mul_(scale == 1e30 ? 1.0 : scale);
      if (scale == 1e30 && rank == 1) net.params()[0].tensor.mutable_grad().mul_(scale);
    };
    const NetResult got = train_on(2, run);
    EXPECT_FALSE(got.results[0].skipped);
    const double rms = got.results[0].update_rms.at("muon");
    if (scale == 0.0) {
      EXPECT_EQ(got.results[0].grad_norm, 0.0);
      EXPECT_EQ(rms, 0.0);
      const SmallNet fresh;
      for (size_t i = 0; i < got.params.size(); ++i)
        EXPECT_TRUE(same_bytes(got.params[i], fresh.params()[i].tensor.detach()));
    } else {
      EXPECT_NEAR(rms, 0.2, 0.06);
      EXPECT_LE(got.results[0].clip_coefficient, scale == 1e30 ? 1e-25 : 1.0);
    }
  }
}

// Gap 8: padding is zero at the start, stays zero through steps, and a NaN written into it is in
// no norm and reaches no parameter.
TEST(GradientNorm, PaddingIsNeverCounted) {
  for (auto layout : {LayoutKind::kBalanced, LayoutKind::kMegatron}) {
    NetRun run{.steps = 3};
    run.ddp.param_layout = layout;
    run.ddp.bucket_size = 700;
    const NetResult expected = train_on(4, run);
    run.before_step = [&](const SmallNet&, WrappedModel& model, int64_t, int step) {
      for (const auto& buffer : model.chunks[0]->buffers()) {
        at::Tensor padding = at::ones({buffer->layout().numel()}, at::kBool);
        for (const auto& place : buffer->layout().placements)
          padding.slice(0, place.start, place.end).fill_(false);
        EXPECT_EQ(buffer->grad_data().masked_select(padding).abs().sum().item<double>(), 0.0);
        EXPECT_EQ(buffer->param_data().masked_select(padding).abs().sum().item<double>(), 0.0);
        if (step == 2) buffer->grad_data().masked_fill_(padding, std::nan(""));
      }
    };
    expect_same_bytes(train_on(4, run), expected, to_string(layout));
  }
}

}  // namespace
}  // namespace muoncore::parallel
