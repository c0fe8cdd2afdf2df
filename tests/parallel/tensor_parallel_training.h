// The same matrices trained for some steps by one process and by tensor-parallel ranks (threads).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "muoncore/comm/threads.h"
#include "muoncore/parallel/tensor_parallel_muon.h"
#include "tests/optim/support.h"

namespace muoncore::parallel::testing {

using optim::testing::max_difference;
using optim::testing::random_tensor;
using optim::testing::same_bytes;

inline ParamSpec matrix(std::string name, std::vector<int64_t> shape, int partition_dim,
                        std::vector<int64_t> blocks = {}, bool per_group = false) {
  ParamSpec spec;
  spec.name = std::move(name);
  spec.shape = std::move(shape);
  spec.partition_dim = partition_dim;
  spec.blocks = {std::move(blocks), per_group};
  return spec;
}

struct Training {
  std::vector<ParamSpec> specs;  // logical
  optim::MuonOptions options;
  int steps = 3;
  at::ScalarType dtype = at::kFloat;
  double grad_scale = 1.0;
  // The whole gradient of a step; undefined: none.
  std::function<at::Tensor(const ParamSpec&, int step)> gradient = [](const ParamSpec& spec,
                                                                      int step) {
    return random_tensor(spec.shape, fmt::format("{}/grad{}", spec.name, step), 0.3);
  };
  // The whole parameter before the first step.
  std::function<at::Tensor(const ParamSpec&)> start = [](const ParamSpec& spec) {
    return random_tensor(spec.shape, fmt::format("{}/start", spec.name), 0.5);
  };
};

// Whole tensors, in the order of the specs.
struct Trained {
  std::vector<at::Tensor> params, momenta;
  std::vector<int64_t> bytes;            // sent by each rank
  std::vector<optim::GroupStats> stats;  // of each rank's last step
};

inline optim::MuonOptions options_of(const std::string& precision = "highest", double lr = 0.02) {
  optim::MuonOptions options(lr);
  options.fp32_matmul_prec(precision).extra_scale_factor(0.2).weight_decay(0.1);
  return options;
}

inline std::vector<torch::optim::OptimizerParamGroup> one_group(
    const std::vector<at::Tensor>& params, const optim::MuonOptions& options) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(params, std::make_unique<optim::MuonOptions>(options));
  return groups;
}

// Steps `muon`, whose shards `cut` makes out of whole tensors.
inline void train(
    optim::Muon& muon, std::vector<at::Tensor>& params, const Training& training,
    const std::function<at::Tensor(const at::Tensor& whole, const ParamSpec& spec)>& cut) {
  for (int step = 1; step <= training.steps; ++step) {
    for (size_t k = 0; k < params.size(); ++k) {
      const at::Tensor whole = training.gradient(training.specs[k], step);
      params[k].mutable_grad() =
          whole.defined() ? cut(whole.to(training.dtype), training.specs[k]) : at::Tensor();
    }
    muon.step_with({.grad_scale = training.grad_scale});
  }
}

inline at::Tensor momentum_of(const optim::Muon& muon, const at::Tensor& param) {
  const auto state = muon.param_state(param);
  const auto it = state.find("momentum_buffer");
  return it == state.end() ? at::Tensor() : it->second;
}

inline Trained one_process(const Training& training) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // as every rank
  Trained out;
  for (const ParamSpec& spec : training.specs)
    out.params.push_back(training.start(spec).to(training.dtype));
  optim::Muon muon(one_group(out.params, training.options), training.options);
  for (size_t k = 0; k < out.params.size(); ++k) muon.set_spec(out.params[k], training.specs[k]);
  train(muon, out.params, training, [](const at::Tensor& x, const ParamSpec&) { return x; });
  for (const at::Tensor& param : out.params) out.momenta.push_back(momentum_of(muon, param));
  out.stats = {muon.last_stats().at(0)};
  at::set_num_threads(threads);
  return out;
}

// One rank's shards.
inline Trained one_rank(const Training& training, comm::Group& tp, TensorParallelOptions options) {
  Trained own;
  auto cut = [&](const at::Tensor& x, const ParamSpec& spec) {
    return shard_of(x, spec, tp.size(), tp.rank());
  };
  for (const ParamSpec& spec : training.specs)
    own.params.push_back(cut(training.start(spec).to(training.dtype), spec));
  TensorParallelMuon muon(tp, options, one_group(own.params, training.options), training.options);
  for (size_t k = 0; k < own.params.size(); ++k)
    muon.set_spec(own.params[k], shard_spec(training.specs[k], tp.size()));
  train(muon, own.params, training, cut);
  for (const at::Tensor& param : own.params) own.momenta.push_back(momentum_of(muon, param));
  own.bytes = {tp.bytes_sent()};
  own.stats = muon.last_stats();
  return own;
}

// Every rank's shards put together; replicas of what is not cut must be equal bit for bit.
inline Trained tensor_parallel(const Training& training, int64_t ranks,
                               TensorParallelOptions options) {
  std::vector<Trained> by_rank(static_cast<size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Group& tp) {
    by_rank[static_cast<size_t>(tp.rank())] = one_rank(training, tp, options);
  });
  Trained out;
  for (const Trained& own : by_rank) {
    out.bytes.push_back(own.bytes.at(0));
    out.stats.push_back(own.stats.at(0));
  }
  for (size_t k = 0; k < training.specs.size(); ++k) {
    std::vector<at::Tensor> params, momenta;
    for (const Trained& own : by_rank) {
      params.push_back(own.params[k]);
      momenta.push_back(own.momenta[k]);
      if (training.specs[k].partition_dim == -1) {
        EXPECT_TRUE(same_bytes(own.params[k], by_rank[0].params[k])) << training.specs[k].name;
      }
    }
    out.params.push_back(unshard(params, training.specs[k]));
    out.momenta.push_back(momenta[0].defined() ? unshard(momenta, training.specs[k])
                                               : at::Tensor());
  }
  return out;
}

// Of all matrices of one transformer layer, attention fused by query groups, with experts.
inline std::vector<ParamSpec> transformer_layer() {
  return {
      matrix("attention.qkv", {96, 40}, 0, {16, 4, 4}),   // 4 groups
      matrix("attention.heads", {32, 40}, 0, {8}, true),  // every head on its own
      matrix("attention.out", {40, 64}, 1),
      matrix("attention.out_heads", {24, 40}, 1, {6}, true),  // heads, their columns cut
      matrix("mlp.gate_up", {112, 40}, 0, {56, 56}),
      matrix("mlp.down", {40, 56}, 1),
      matrix("experts.gate_up", {3, 48, 20}, 1, {24, 24}),
      matrix("experts.down", {3, 20, 24}, 2),
      matrix("experts.whole", {4, 12, 20}, 0),
      matrix("tall", {72, 20}, 0),
      matrix("wide", {20, 72}, 0),  // the cut side is the shorter one
      matrix("tall_cols", {72, 20}, 1),
      matrix("square", {36, 36}, 1),
      matrix("row", {1, 64}, 1),
      matrix("column", {64, 1}, 0),
      matrix("odd", {7, 12}, 1),
      matrix("replicated", {24, 40}, -1),
      matrix("empty", {0, 8, 8}, 1),
  };
}

// Largest |a - b| / (2e-6 + 1e-5 |b|): the bound of issue 5 for fp32, "highest".
inline double of_bound(const at::Tensor& a, const at::Tensor& b) {
  if (b.numel() == 0) return 0;
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).abs() / (y.abs() * 1e-5 + 2e-6)).max().item<double>();
}

}  // namespace muoncore::parallel::testing
