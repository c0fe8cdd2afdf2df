// Pipeline stages as bags: a stage without a matrix for Muon, and an embedding that the first and
// the last stage share.
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <map>
#include <mutex>

#include "muoncore/comm/mesh.h"
#include "tests/parallel/small_net.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's

ChunkParam param_of(const std::string& name, ParamRole role, std::vector<int64_t> shape,
                    at::ScalarType dtype) {
  ChunkParam param;
  param.spec.name = name;
  param.spec.role = role;
  param.spec.shape = shape;
  param.tensor = random_tensor(shape, "stage/" + name, 0.5, dtype).set_requires_grad(true);
  return param;
}

// Stage 0: embedding and norm, nothing for Muon. Stage 1: two matrices, a bias, and the embedding
// again as output layer.
ModelChunk stage_of(int64_t stage, at::ScalarType dtype) {
  ModelChunk chunk;
  ChunkParam embedding = param_of("embed", ParamRole::kEmbedding, {40, 24}, dtype);
  embedding.shared_embedding = true;
  if (stage == 0) {
    chunk.params = {embedding, param_of("norm", ParamRole::kNorm, {24}, dtype)};
  } else {
    chunk.params = {param_of("up", ParamRole::kMatrix, {50, 24}, dtype),
                    param_of("bias", ParamRole::kBias, {50}, dtype),
                    param_of("down", ParamRole::kMatrix, {24, 50}, dtype), embedding};
  }
  return chunk;
}

at::Tensor gradient_of(const ChunkParam& param, int64_t stage, int64_t dp, int step) {
  return random_tensor(param.spec.shape,
                       fmt::format("{} {} {} {}", param.spec.name, stage, dp, step), 0.3);
}

struct Outcome {
  std::map<std::string, at::Tensor> params;
  std::vector<optim::StepResult> steps;
};

// What the sum over stages and replicas makes of one process's model.
Outcome one_process(int64_t replicas, at::ScalarType dtype) {
  std::vector<ChunkParam> all = stage_of(0, dtype).params;
  for (const auto& param : stage_of(1, dtype).params)
    if (!param.shared_embedding) all.push_back(param);
  std::vector<optim::NamedParam> params;
  for (const auto& param : all) params.push_back({param.spec, param.tensor});
  auto optimizer = optim::build_optimizer(params, net_config());
  Outcome out;
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < all.size(); ++i) {
      at::Tensor sum = at::zeros(all[i].spec.shape);
      for (int64_t stage = 0; stage < 2; ++stage)
        for (int64_t dp = 0; dp < replicas; ++dp)
          if (all[i].shared_embedding || (stage == 0) == (i < 2))
            sum += gradient_of(all[i], stage, dp, step);
      all[i].tensor.mutable_grad() = sum;
    }
    out.steps.push_back(optimizer->step());
  }
  for (const auto& param : all) out.params[param.spec.name] = param.tensor.detach();
  return out;
}

TEST(Stages, OneWithoutMatricesAndATiedEmbedding) {
  for (auto dtype : {at::kFloat, at::kBFloat16})
    for (int64_t replicas : {1, 2, 3})
      for (bool distributed : {true, false}) {
        const Outcome expected = one_process(replicas, dtype);
        std::mutex mutex;
        std::vector<at::Tensor> embeddings;
        comm::run_ranks(2 * replicas, [&](comm::Group&, comm::GroupFactory& factory) {
          const comm::Mesh mesh(factory, {.pp = 2});
          const int64_t stage = mesh.pp().rank(), dp = mesh.dp().rank();
          ParallelGroups groups = groups_of(mesh);
          groups.embedding = &mesh.pp();
          DistributedDataParallelConfig ddp = sums();
          ddp.use_distributed_optimizer = distributed;
          ddp.bucket_size = 700;
          const ModelChunk chunk = stage_of(stage, dtype);
          WrappedModel model =
              wrap_model_chunks_with_layerwise_aware_ddp({chunk}, net_config(), ddp, groups);
          for (int step = 0; step < 3; ++step) {
            model.optimizer->zero_grad();
            for (size_t i = 0; i < chunk.params.size(); ++i)
              model.chunks[0]->add_gradient(i, gradient_of(chunk.params[i], stage, dp, step));
            const optim::StepResult result = model.optimizer->step();
            const optim::StepResult& one = expected.steps[static_cast<size_t>(step)];
            EXPECT_NEAR(result.grad_norm / one.grad_norm, 1.0, 1e-6);
            EXPECT_EQ(result.ns_calls, 2);
            EXPECT_NEAR(result.update_rms.at("muon"), one.update_rms.at("muon"), 1e-4);
          }
          check_replicas({chunk}, groups);
          for (const auto& param : chunk.params)
            EXPECT_LE(max_difference(param.tensor, expected.params.at(param.spec.name)),
                      dtype == at::kFloat ? 3e-6 : 8e-3)
                << param.spec.name << ", dp " << replicas;
          const std::lock_guard lock(mutex);
          embeddings.push_back(chunk.params[stage == 0 ? 0 : 3].tensor.detach());
        });
        for (const auto& embedding : embeddings) EXPECT_TRUE(same_bytes(embedding, embeddings[0]));
      }
}

}  // namespace
}  // namespace muoncore::parallel
