// A small network with every kind of parameter, trained on one fixed global batch by any number of
// ranks (threads): rank r of n takes its n-th of the samples, and losses are sums over samples
// divided by the number of all.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "muoncore/comm/threads.h"
#include "muoncore/optim/build.h"
#include "muoncore/parallel/wrap.h"
#include "tests/optim/support.h"

namespace muoncore::parallel::testing {

using optim::testing::max_difference;
using optim::testing::random_tensor;
using optim::testing::same_bytes;

constexpr int64_t kSamples = 8, kWords = 24, kWidth = 16;

class SmallNet {
 public:
  explicit SmallNet(at::ScalarType dtype = at::kFloat, int64_t layers = 2) : layers_(layers) {
    add("embed", ParamRole::kEmbedding, {kWords, kWidth}, dtype);
    for (int64_t k = 0; k < layers; ++k) {
      const std::string at = fmt::format("layers.{}.", k);
      add(at + "norm", ParamRole::kNorm, {kWidth}, dtype);
      add(at + "qkv", ParamRole::kMatrix, {32, kWidth}, dtype, {8, 4, 4});
      add(at + "proj", ParamRole::kMatrix, {kWidth, 32}, dtype);
      add(at + "up", ParamRole::kMatrix, {37, kWidth}, dtype);  // odd
      add(at + "up_bias", ParamRole::kBias, {37}, dtype);
      add(at + "down", ParamRole::kMatrix, {kWidth, 37}, dtype);
    }
    add("out", ParamRole::kOutput, {kWords, kWidth}, dtype);
  }

  const std::vector<optim::NamedParam>& params() const { return params_; }

  ModelChunk chunk() const {
    ModelChunk chunk;
    for (const auto& [spec, tensor] : params_)
      chunk.params.push_back({.spec = spec, .tensor = tensor});
    return chunk;
  }

  // Of samples [first, last), in batch `step`. skip_mlp: layers whose up and down are not used.
  at::Tensor loss(int64_t first, int64_t last, int step, int64_t skip_mlp = -1) const {
    const at::Tensor ids = (at::arange(first, last) * 7 + step * 5) % kWords;
    const at::Tensor targets = (at::arange(first, last) * 3 + step) % kWords;
    size_t next = 0;
    auto take = [&] { return params_[next++].tensor; };
    at::Tensor x = at::embedding(take(), ids);
    for (int64_t k = 0; k < layers_; ++k) {
      const at::Tensor norm = take(), qkv = take(), proj = take(), up = take(), bias = take(),
                       down = take();
      x = x + at::linear(at::tanh(at::linear(x * norm, qkv)), proj);
      if (k != skip_mlp) x = x + at::linear(at::tanh(at::linear(x, up, bias)), down);
    }
    const at::Tensor logits = at::linear(x, take()).to(at::kFloat);
    return at::cross_entropy_loss(logits, targets, {}, /*reduction=sum*/ 2) /
           static_cast<double>(kSamples);
  }

 private:
  void add(const std::string& name, ParamRole role, std::vector<int64_t> shape,
           at::ScalarType dtype, std::vector<int64_t> rows = {}) {
    ParamSpec spec;
    spec.name = name;
    spec.role = role;
    spec.shape = shape;
    spec.blocks.rows = std::move(rows);
    params_.push_back(
        {spec, random_tensor(shape, "net/" + name, 0.4, dtype).set_requires_grad(true)});
  }

  int64_t layers_;
  std::vector<optim::NamedParam> params_;
};

inline optim::OptimizerConfig net_config(const std::string& optimizer = "muon") {
  optim::OptimizerConfig config;
  config.optimizer = optimizer;
  config.lr = 0.02;
  config.weight_decay = 0.1;
  config.betas = {0.9, 0.95};
  config.clip_grad = 1.0;
  config.muon_extra_scale_factor = 0.2;
  config.muon_fp32_matmul_prec = "highest";
  return config;
}

inline DistributedDataParallelConfig sums() {
  DistributedDataParallelConfig config;
  config.average_gradients = false;
  return config;
}

inline ParallelGroups dp_only(comm::Group& world) {
  return {.world = &world, .dp = &world, .expert_dp = &world};
}

struct NetRun {
  at::ScalarType dtype = at::kFloat;
  int steps = 3;
  int micro_batches = 1;
  int64_t layers = 2;
  int64_t skip_mlp = -1;
  optim::OptimizerConfig optimizer = net_config();
  DistributedDataParallelConfig ddp = sums();
  // Between the backward passes and the step, on every rank.
  std::function<void(const SmallNet&, WrappedModel&, int64_t rank, int step)> before_step = nullptr;
};

struct NetResult {
  std::vector<at::Tensor> params;              // after the last step
  std::vector<optim::StepResult> results;      // of rank 0
  std::vector<std::vector<at::Tensor>> steps;  // parameters after each step
};

inline std::vector<at::Tensor> values(const SmallNet& net) {
  std::vector<at::Tensor> out;
  for (const auto& param : net.params()) out.push_back(param.tensor.detach().clone());
  return out;
}

// One process, no buffers.
inline NetResult train_alone(const NetRun& run) {
  at::AutoGradMode gradients_on(true);
  SmallNet net(run.dtype, run.layers);
  auto optimizer = optim::build_optimizer(net.params(), run.optimizer);
  NetResult out;
  for (int step = 0; step < run.steps; ++step) {
    optimizer->zero_grad();
    net.loss(0, kSamples, step, run.skip_mlp).backward();
    out.results.push_back(optimizer->step());
    out.steps.push_back(values(net));
  }
  out.params = values(net);
  return out;
}

inline void backward_share(const SmallNet& net, WrappedModel& model, const NetRun& run,
                           const comm::Group& world, int step) {
  const int64_t share = kSamples / world.size(), first = world.rank() * share,
                micro = share / run.micro_batches;
  for (int m = 0; m + 1 < run.micro_batches; ++m) {
    const NoSync no_sync(*model.schedule);
    net.loss(first + m * micro, first + (m + 1) * micro, step, run.skip_mlp).backward();
  }
  net.loss(first + (run.micro_batches - 1) * micro, first + share, step, run.skip_mlp).backward();
}

// What rank 0 has. Every step: all replicas have the same bytes.
inline NetResult train_on(int64_t ranks, const NetRun& run) {
  NetResult out;
  comm::run_ranks(ranks, [&](comm::Group& world) {
    at::AutoGradMode gradients_on(true);
    SmallNet net(run.dtype, run.layers);
    const ParallelGroups groups = dp_only(world);
    WrappedModel model =
        wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, run.optimizer, run.ddp, groups);
    for (int step = 0; step < run.steps; ++step) {
      model.optimizer->zero_grad();
      model.wait_params();
      backward_share(net, model, run, world, step);
      if (run.before_step) run.before_step(net, model, world.rank(), step);
      const optim::StepResult result = model.optimizer->step();
      model.wait_params();
      check_replicas({net.chunk()}, groups);
      if (world.rank() > 0) continue;
      out.results.push_back(result);
      out.steps.push_back(values(net));
    }
    if (world.rank() == 0) out.params = values(net);
  });
  return out;
}

inline void expect_same_bytes(const NetResult& a, const NetResult& b, const std::string& what) {
  ASSERT_EQ(a.steps.size(), b.steps.size()) << what;
  for (size_t step = 0; step < a.steps.size(); ++step) {
    EXPECT_EQ(a.results[step].grad_norm, b.results[step].grad_norm) << what << ", step " << step;
    for (size_t i = 0; i < a.steps[step].size(); ++i)
      EXPECT_TRUE(same_bytes(a.steps[step][i], b.steps[step][i]))
          << what << ", step " << step << ", parameter " << i << ": "
          << max_difference(a.steps[step][i], b.steps[step][i]);
  }
}

}  // namespace muoncore::parallel::testing
