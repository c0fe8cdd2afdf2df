// One step of tensor-parallel Muon in each tp_mode: time and bytes per rank, on ranks that are
// threads of this process (one LibTorch thread each), and one rank alone for comparison. CPU time
// is that of the whole process divided by the ranks: it holds on a busy machine too.
//
//   tensor_parallel_muon [ranks] [layers] [hidden] [highest|medium]
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "muoncore/comm/threads.h"
#include "muoncore/core/rng.h"
#include "muoncore/parallel/tensor_parallel_muon.h"

namespace {

using muoncore::ParamSpec;
using muoncore::parallel::TpMode;

constexpr int kSteps = 4;  // the first is not counted; of the others the fastest

struct Setting {
  int64_t ranks = 2, layers = 2, hidden = 512;
  std::string precision = "medium";
};

ParamSpec spec_of(std::string name, std::vector<int64_t> shape, int partition_dim,
                  std::vector<int64_t> blocks = {}) {
  ParamSpec spec;
  spec.name = std::move(name);
  spec.shape = std::move(shape);
  spec.partition_dim = partition_dim;
  spec.blocks.rows = std::move(blocks);
  return spec;
}

// The matrices of Llama's layers: heads of 64, two query heads to a key head, gated MLP of 8/3.
std::vector<ParamSpec> layers_of(const Setting& s) {
  const int64_t h = s.hidden, ffn = h * 8 / 3 / 64 * 64;
  std::vector<ParamSpec> specs;
  for (int64_t layer = 0; layer < s.layers; ++layer) {
    const std::string at = fmt::format("layers.{}.", layer);
    specs.push_back(spec_of(at + "qkv", {2 * h, h}, 0, {128, 64, 64}));
    specs.push_back(spec_of(at + "out", {h, h}, 1));
    specs.push_back(spec_of(at + "gate_up", {2 * ffn, h}, 0, {ffn, ffn}));
    specs.push_back(spec_of(at + "down", {h, ffn}, 1));
  }
  return specs;
}

at::Tensor random_shard(const std::vector<int64_t>& shape, const std::string& key, int64_t rank) {
  at::Tensor out = at::empty(shape, at::kFloat);
  const muoncore::CounterRng rng({muoncore::hash_name(key), static_cast<uint64_t>(rank)});
  for (int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data_ptr<float>()[i] = static_cast<float>(rng.normal(static_cast<uint64_t>(i)));
  return out;
}

struct Measured {
  double seconds = 0;      // of a step, the slowest rank
  double cpu_seconds = 0;  // of a step, all threads
  int64_t bytes = 0;       // sent by a step, all ranks
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The least of all steps but the first.
void keep_least(double& least, double value, int step) {
  if (step == 1 || (step > 1 && value < least)) least = value;
}

Measured measure(const Setting& setting, int64_t ranks, TpMode mode) {
  const std::vector<ParamSpec> specs = layers_of(setting);
  muoncore::optim::MuonOptions options(0.02);
  options.fp32_matmul_prec(setting.precision);
  std::vector<Measured> by_rank(static_cast<size_t>(ranks));
  muoncore::comm::run_ranks(ranks, [&](muoncore::comm::Group& tp) {
    std::vector<at::Tensor> params;
    for (const ParamSpec& spec : specs) {
      params.push_back(
          random_shard(muoncore::parallel::shard_shape(spec, ranks), spec.name, tp.rank()));
      params.back().mutable_grad() =
          random_shard(params.back().sizes().vec(), spec.name + "/grad", tp.rank());
    }
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(params, std::make_unique<muoncore::optim::MuonOptions>(options));
    muoncore::parallel::TensorParallelMuon muon(tp, {.mode = mode}, groups, options);
    for (size_t k = 0; k < specs.size(); ++k)
      muon.set_spec(params[k], muoncore::parallel::shard_spec(specs[k], ranks));
    Measured& own = by_rank[static_cast<size_t>(tp.rank())];
    for (int step = 0; step < kSteps; ++step) {
      tp.barrier("before a step");
      const int64_t sent = tp.bytes_sent();
      const double cpu = cpu_seconds();
      const auto start = std::chrono::steady_clock::now();
      muon.step();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      own.bytes = tp.bytes_sent() - sent;
      tp.barrier("behind a step");
      keep_least(own.seconds, took.count(), step);
      keep_least(own.cpu_seconds, cpu_seconds() - cpu, step);
    }
  });
  Measured all;
  for (const Measured& own : by_rank) {
    all.seconds = std::max(all.seconds, own.seconds);
    all.cpu_seconds = std::max(all.cpu_seconds, own.cpu_seconds);
    all.bytes += own.bytes;
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  Setting setting;
  if (argc > 1) setting.ranks = std::atoll(argv[1]);
  if (argc > 2) setting.layers = std::atoll(argv[2]);
  if (argc > 3) setting.hidden = std::atoll(argv[3]);
  if (argc > 4) setting.precision = argv[4];
  fmt::print("{} layers, hidden {}, {}; {} ranks\n\n", setting.layers, setting.hidden,
             setting.precision, setting.ranks);
  fmt::print("| tp_mode | step, ms | CPU per rank, ms | MB sent per rank |\n|---|---|---|---|\n");
  auto row = [&](const std::string& name, int64_t ranks, TpMode mode) {
    const Measured m = measure(setting, ranks, mode);
    const auto per_rank = [ranks](double total) { return total / static_cast<double>(ranks); };
    fmt::print("| {} | {:.0f} | {:.0f} | {:.2f} |\n", name, 1e3 * m.seconds,
               1e3 * per_rank(m.cpu_seconds), per_rank(static_cast<double>(m.bytes)) / 1e6);
  };
  row("(one rank)", 1, TpMode::kDuplicated);
  for (TpMode mode :
       {TpMode::kBlockwise, TpMode::kDuplicated, TpMode::kDistributed, TpMode::kLayerSharded})
    row(muoncore::parallel::to_string(mode), setting.ranks, mode);
  return 0;
}
