// One optimizer step over data-parallel ranks: time and bytes per rank, on ranks that are threads
// of this process (one LibTorch thread each). CPU time is that of the whole process divided by the
// ranks: it holds on a busy machine too.
//
//   data_parallel_step [layers] [hidden] [highest|medium] [float|bfloat16]
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "muoncore/comm/threads.h"
#include "muoncore/core/rng.h"
#include "muoncore/optim/exact_sum.h"
#include "muoncore/parallel/wrap.h"

namespace {

using namespace muoncore;  // NOLINT: a program of one file

constexpr int kSteps = 4;  // the first is not counted; of the others the fastest

struct Setting {
  int64_t layers = 6, hidden = 512;
  std::string precision = "medium";
  at::ScalarType dtype = at::kBFloat16;
};

ParamSpec spec_of(std::string name, ParamRole role, std::vector<int64_t> shape) {
  ParamSpec spec;
  spec.name = std::move(name);
  spec.role = role;
  spec.shape = std::move(shape);
  return spec;
}

// Llama's layers with a gated MLP of 8/3, and a small vocabulary.
std::vector<ParamSpec> model_of(const Setting& s) {
  const int64_t h = s.hidden, ffn = h * 8 / 3 / 64 * 64;
  std::vector<ParamSpec> specs{spec_of("embed", ParamRole::kEmbedding, {8192, h})};
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string at = fmt::format("layers.{}.", layer);
    specs.push_back(spec_of(at + "norm", ParamRole::kNorm, {h}));
    for (const char* name : {"q", "k", "v", "o"})
      specs.push_back(spec_of(at + name, ParamRole::kMatrix, {h, h}));
    for (const char* name : {"gate", "up"})
      specs.push_back(spec_of(at + name, ParamRole::kMatrix, {ffn, h}));
    specs.push_back(spec_of(at + "down", ParamRole::kMatrix, {h, ffn}));
  }
  return specs;
}

// A gradient with a spread of values, made fast.
at::Tensor gradient_of(const ParamSpec& spec, int64_t rank) {
  at::Tensor out = at::empty(spec.shape, at::kFloat);
  uint32_t state = static_cast<uint32_t>(hash_name(spec.name)) + static_cast<uint32_t>(rank);
  for (int64_t i = 0; i < out.numel(); ++i) {
    state = state * 1664525u + 1013904223u;
    out.mutable_data_ptr<float>()[i] = static_cast<float>(static_cast<int32_t>(state)) * 1e-12f;
  }
  return out;
}

double now(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Measured {
  double seconds = 1e9, cpu_seconds = 1e9;  // of a step, per rank
  int64_t state = 0, sent = 0;              // bytes, of the rank with most
};

Measured measure(const Setting& setting, int64_t ranks, const std::string& optimizer) {
  std::vector<Measured> by_rank(static_cast<size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Group& world) {
    parallel::ModelChunk chunk;
    for (const ParamSpec& spec : model_of(setting))
      chunk.params.push_back(
          {.spec = spec,
           .tensor = at::full(spec.shape, 0.02, setting.dtype).set_requires_grad(true)});
    optim::OptimizerConfig config;
    config.optimizer = optimizer;
    config.muon_fp32_matmul_prec = setting.precision;
    auto model = parallel::wrap_model_chunks_with_layerwise_aware_ddp(
        {chunk}, config, {}, {.world = &world, .dp = &world});
    std::vector<at::Tensor> gradients;
    for (const auto& param : chunk.params)
      gradients.push_back(gradient_of(param.spec, world.rank()));
    Measured& own = by_rank[static_cast<size_t>(world.rank())];
    for (int step = 0; step < kSteps; ++step) {
      model.optimizer->zero_grad();
      for (size_t i = 0; i < gradients.size(); ++i) model.chunks[0]->add_gradient(i, gradients[i]);
      const int64_t before = world.bytes_sent();
      world.barrier("start of a step");
      const double start = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
      model.optimizer->step();
      world.barrier("end of a step");
      if (step > 0) {
        own.seconds = std::min(own.seconds, now(CLOCK_MONOTONIC) - start);
        own.cpu_seconds = std::min(own.cpu_seconds, (now(CLOCK_PROCESS_CPUTIME_ID) - cpu) /
                                                        static_cast<double>(world.size()));
      }
      own.sent = world.bytes_sent() - before;
    }
    own.state = model.optimizer->state_bytes() + model.optimizer->master_bytes();
  });
  Measured out = by_rank[0];
  for (const Measured& rank : by_rank) {
    out.seconds = std::max(out.seconds, rank.seconds);
    out.cpu_seconds = std::max(out.cpu_seconds, rank.cpu_seconds);
    out.state = std::max(out.state, rank.state);
    out.sent = std::max(out.sent, rank.sent);
  }
  return out;
}

void measure_norm() {
  const at::Tensor gradient = gradient_of(spec_of("norm", ParamRole::kMatrix, {4096, 4096}), 0);
  for (const at::Tensor& x : {gradient, gradient.to(at::kBFloat16)}) {
    double least = 1e9;
    for (int k = 0; k < 5; ++k) {
      const double start = now(CLOCK_PROCESS_CPUTIME_ID);
      optim::ExactSum sum;
      sum.add_squares(x);
      least = std::min(least, now(CLOCK_PROCESS_CPUTIME_ID) - start);
    }
    fmt::print("exact sum of squares, {}: {:.2f} ns per element (CPU time)\n",
               c10::toString(x.scalar_type()), 1e9 * least / static_cast<double>(x.numel()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Setting setting;
  if (argc > 1) setting.layers = std::atoll(argv[1]);
  if (argc > 2) setting.hidden = std::atoll(argv[2]);
  if (argc > 3) setting.precision = argv[3];
  if (argc > 4 && std::string(argv[4]) == "float") setting.dtype = at::kFloat;
  measure_norm();
  fmt::print("{:9} {:>5} {:>12} {:>12} {:>14} {:>14}\n", "optimizer", "ranks", "ms", "CPU ms/rank",
             "state MB/rank", "sent MB/rank");
  for (const std::string optimizer : {"muon", "adam"})
    for (int64_t ranks : {1, 2, 4}) {
      const Measured m = measure(setting, ranks, optimizer);
      fmt::print("{:9} {:>5} {:>12.1f} {:>12.1f} {:>14.2f} {:>14.2f}\n", optimizer, ranks,
                 1e3 * m.seconds, 1e3 * m.cpu_seconds, 1e-6 * static_cast<double>(m.state),
                 1e-6 * static_cast<double>(m.sent));
    }
}
