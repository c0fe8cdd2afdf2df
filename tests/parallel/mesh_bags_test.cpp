// A model cut into 2 tensor-parallel ranks x 2 pipeline stages x 2 chunks per stage, as bags of
// parameters, with 1 and 2 data-parallel replicas: every weight equals one process's.
#include <gmock/gmock.h>

#include <map>

#include "muoncore/comm/mesh.h"
#include "muoncore/optim/build.h"
#include "muoncore/parallel/wrap.h"
#include "tests/parallel/tensor_parallel_training.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's

constexpr int64_t kTp = 2, kStages = 2, kChunks = 2;
constexpr int kSteps = 3;

ParamSpec with_role(ParamSpec spec, ParamRole role) {
  spec.role = role;
  return spec;
}

// One layer per chunk; embedding in front of the first, output layer behind the last.
std::vector<ParamSpec> layer(int64_t index) {
  const std::string at = fmt::format("layers.{}.", index);
  std::vector<ParamSpec> specs = {
      with_role(matrix(at + "norm", {24}, -1), ParamRole::kNorm),
      matrix(at + "qkv", {32, 24}, 0, {4, 2, 2}),
      matrix(at + "out", {24, 16}, 1),
      matrix(at + "gate_up", {80, 24}, 0, {40, 40}),
      matrix(at + "down", {24, 40}, 1),
  };
  // Not every chunk is like every other: odd ones have a matrix that is not cut.
  if (index % 2 == 1) specs.push_back(matrix(at + "mixer", {10, 24}, -1));
  return specs;
}

std::vector<ParamSpec> chunk_of(int64_t index) {
  std::vector<ParamSpec> specs = layer(index);
  if (index == 0)
    specs.insert(specs.begin(), with_role(matrix("embedding", {50, 24}, 0), ParamRole::kEmbedding));
  if (index == kStages * kChunks - 1)
    specs.push_back(with_role(matrix("output", {50, 24}, 0), ParamRole::kOutput));
  return specs;
}

optim::OptimizerConfig config_of(TpMode mode) {
  optim::OptimizerConfig config;
  config.optimizer = "muon";
  config.lr = 0.02;
  config.weight_decay = 0.1;
  config.clip_grad = 1.0;
  config.muon_fp32_matmul_prec = "highest";
  config.muon_extra_scale_factor = 0.2;
  config.muon_tp_mode = to_string(mode);
  return config;
}

at::Tensor start_of(const ParamSpec& spec) {
  return random_tensor(spec.shape, spec.name + "/start", 0.5);
}

at::Tensor gradient_of(const ParamSpec& spec, int step) {
  return random_tensor(spec.shape, fmt::format("{}/grad{}", spec.name, step), 0.3);
}

struct Outcome {
  std::map<std::string, at::Tensor> params;  // whole
  std::vector<optim::StepResult> steps;
};

Outcome one_process_outcome(TpMode mode) {
  std::vector<optim::NamedParam> params;
  for (int64_t index = 0; index < kStages * kChunks; ++index)
    for (const ParamSpec& spec : chunk_of(index))
      params.push_back({spec, start_of(spec).set_requires_grad(true)});
  auto optimizer = optim::build_optimizer(params, config_of(mode));
  Outcome out;
  for (int step = 1; step <= kSteps; ++step) {
    for (auto& param : params) param.tensor.mutable_grad() = gradient_of(param.spec, step);
    out.steps.push_back(optimizer->step());
  }
  for (const auto& param : params) out.params[param.spec.name] = param.tensor.detach();
  return out;
}

// One rank: its shards after all steps, by name.
Outcome one_rank_outcome(const comm::Mesh& mesh, TpMode mode,
                         const DistributedDataParallelConfig& ddp) {
  const ParallelGroups groups = groups_of(mesh);
  const int64_t tp = mesh.tp().rank(), dp = mesh.dp().rank(), replicas = mesh.dp().size();
  std::vector<ModelChunk> chunks;
  for (int64_t c = 0; c < kChunks; ++c) {
    chunks.emplace_back();
    for (const ParamSpec& spec : chunk_of(c * kStages + mesh.pp().rank()))
      chunks.back().params.push_back(
          {spec, shard_of(start_of(spec), spec, kTp, tp).set_requires_grad(true)});
  }
  WrappedModel model =
      wrap_model_chunks_with_layerwise_aware_ddp(chunks, config_of(mode), ddp, groups);
  Outcome out;
  for (int step = 1; step <= kSteps; ++step) {
    model.optimizer->zero_grad();
    for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
      at::Tensor loss;
      for (const ChunkParam& param : chunk->params) {
        // Replicas see other data; their mean is the gradient.
        const double weight = replicas == 1 ? 1.0 : (dp == 0 ? 0.5 : 1.5);
        const at::Tensor gradient = shard_of(gradient_of(param.spec, step), param.spec, kTp, tp);
        const at::Tensor term = (param.tensor * gradient * weight).sum();
        loss = loss.defined() ? loss + term : term;
      }
      loss.backward();
    }
    out.steps.push_back(model.optimizer->step());
  }
  model.wait_params();
  check_replicas(chunks, groups);
  for (const ModelChunk& chunk : chunks)
    for (const ChunkParam& param : chunk.params)
      out.params[param.spec.name] = param.tensor.detach().clone();
  return out;
}

// Puts the shards of one replica together.
Outcome mesh_outcome(int64_t replicas, TpMode mode, const DistributedDataParallelConfig& ddp) {
  const int64_t world_size = kTp * kStages * replicas;
  std::vector<Outcome> by_rank(static_cast<size_t>(world_size));
  std::vector<std::pair<int64_t, int64_t>> place(by_rank.size());  // tp, dp
  comm::run_ranks(world_size, [&](comm::Group& world, comm::GroupFactory& factory) {
    const comm::Mesh mesh(factory, {.tp = kTp, .pp = kStages});
    const auto rank = static_cast<size_t>(world.rank());
    by_rank[rank] = one_rank_outcome(mesh, mode, ddp);
    place[rank] = {mesh.tp().rank(), mesh.dp().rank()};
  });
  Outcome out;
  out.steps = by_rank[0].steps;
  for (int64_t index = 0; index < kStages * kChunks; ++index)
    for (const ParamSpec& spec : chunk_of(index)) {
      std::vector<at::Tensor> shards(kTp);
      for (size_t rank = 0; rank < by_rank.size(); ++rank)
        if (place[rank].second == 0 && by_rank[rank].params.count(spec.name) > 0)
          shards[static_cast<size_t>(place[rank].first)] = by_rank[rank].params.at(spec.name);
      out.params[spec.name] = unshard(shards, spec);
    }
  for (const Outcome& own : by_rank)
    for (size_t step = 0; step < own.steps.size(); ++step)
      EXPECT_EQ(own.steps[step].grad_norm, out.steps[step].grad_norm);
  return out;
}

void expect_one_process(int64_t replicas, TpMode mode, const DistributedDataParallelConfig& ddp) {
  const Outcome expected = one_process_outcome(mode);
  const Outcome got = mesh_outcome(replicas, mode, ddp);
  for (const auto& [name, param] : expected.params)
    EXPECT_LE(of_bound(got.params.at(name), param), 1.0)
        << name << ", " << to_string(mode) << ", dp " << replicas;
  for (size_t step = 0; step < expected.steps.size(); ++step) {
    EXPECT_LT(got.steps[step].clip_coefficient, 1.0);  // the norm matters
    EXPECT_NEAR(got.steps[step].grad_norm, expected.steps[step].grad_norm,
                1e-6 * expected.steps[step].grad_norm);
    EXPECT_EQ(got.steps[step].ns_calls, expected.steps[step].ns_calls);
  }
}

TEST(MeshBags, TwoTpTimesTwoStagesTimesTwoChunksIsOneProcess) {
  for (TpMode mode : {TpMode::kDuplicated, TpMode::kDistributed, TpMode::kLayerSharded})
    expect_one_process(1, mode, {.use_layer_wise_distributed_optimizer = true});
}

TEST(MeshBags, AndTwoReplicas) {
  for (LayoutKind layout : {LayoutKind::kBalanced, LayoutKind::kMegatron})
    for (bool overlap : {false, true})
      expect_one_process(2, overlap ? TpMode::kLayerSharded : TpMode::kDuplicated,
                         {.overlap_grad_reduce = overlap,
                          .overlap_param_gather = overlap,
                          .use_layer_wise_distributed_optimizer = true,
                          .param_layout = layout,
                          .bucket_size = 1500});
}

// The negative control: what is orthogonalized shard by shard is another optimizer.
TEST(MeshBags, BlockwiseIsNot) {
  const Outcome expected = one_process_outcome(TpMode::kDuplicated);
  const Outcome got = mesh_outcome(1, TpMode::kBlockwise, {});
  EXPECT_GT(max_difference(got.params.at("layers.0.down"), expected.params.at("layers.0.down")),
            1e-3);
  EXPECT_LE(of_bound(got.params.at("layers.1.mixer"), expected.params.at("layers.1.mixer")), 1.0);
}

}  // namespace
}  // namespace muoncore::parallel
