// Random bags of parameters on random numbers of ranks: gradients that arrive in another order on
// every rank, some on some ranks only, some nowhere. However the optimizer's work is shared out,
// every bit is that of ranks which all do everything.
#include <gmock/gmock.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "muoncore/core/rng.h"
#include "tests/parallel/small_net.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's

class Draws {
 public:
  explicit Draws(uint64_t seed) : rng_({hash_name("random bags"), seed}) {}
  int64_t below(int64_t n) {
    return static_cast<int64_t>(rng_.uniform(next_++) * static_cast<double>(n));
  }
  bool one_in(int64_t n) { return below(n) == 0; }

 private:
  CounterRng rng_;
  uint64_t next_ = 0;
};

struct Bag {
  std::vector<std::vector<ParamSpec>> chunks;
  std::vector<at::ScalarType> dtypes;  // of all parameters in order
};

Bag draw_bag(Draws& draws) {
  Bag bag;
  bag.chunks.resize(1 + draws.below(3));
  const bool mixed = draws.one_in(3);
  const auto dtype = draws.one_in(2) ? at::kFloat : at::kBFloat16;
  for (auto& chunk : bag.chunks) {
    const int64_t count = 1 + draws.below(9);
    for (int64_t i = 0; i < count; ++i) {
      ParamSpec spec;
      spec.name = fmt::format("p{}", bag.dtypes.size());
      const int64_t kind = draws.below(5);
      spec.role = kind == 0   ? ParamRole::kNorm
                  : kind == 1 ? ParamRole::kEmbedding
                              : ParamRole::kMatrix;
      spec.shape = {1 + draws.below(40)};
      if (kind > 0) spec.shape.push_back(1 + draws.below(40));
      if (kind == 4) spec.shape.insert(spec.shape.begin(), 1 + draws.below(3));
      chunk.push_back(spec);
      bag.dtypes.push_back(mixed && draws.one_in(2) ? at::kFloat : dtype);
    }
  }
  ParamSpec matrix;  // Muon has at least one
  matrix.name = "last";
  matrix.shape = {9, 17};
  bag.chunks.back().push_back(matrix);
  bag.dtypes.push_back(dtype);
  return bag;
}

std::vector<ModelChunk> chunks_of(const Bag& bag) {
  std::vector<ModelChunk> chunks;
  size_t next = 0;
  for (const auto& specs : bag.chunks) {
    chunks.emplace_back();
    for (const auto& spec : specs)
      chunks.back().params.push_back(
          {.spec = spec,
           .tensor = random_tensor(spec.shape, "bag/" + spec.name, 0.5, bag.dtypes[next++])
                         .set_requires_grad(true)});
  }
  return chunks;
}

DistributedDataParallelConfig draw_config(Draws& draws) {
  DistributedDataParallelConfig ddp;
  ddp.overlap_grad_reduce = draws.one_in(2);
  ddp.overlap_param_gather = draws.one_in(2);
  ddp.param_layout = draws.one_in(2) ? LayoutKind::kMegatron : LayoutKind::kBalanced;
  if (!draws.one_in(3)) ddp.bucket_size = 1 + draws.below(3000);
  ddp.pad_buckets_for_high_nccl_busbw = draws.one_in(8);
  return ddp;
}

// Which gradients a rank has in a step, in the order of their arrival.
std::vector<size_t> arrivals(size_t params, uint64_t seed, int64_t rank, int step) {
  Draws order(seed * 1000 + static_cast<uint64_t>(rank * 10 + step)), nowhere(seed * 77 + step);
  std::vector<size_t> out;
  for (size_t i = 0; i < params; ++i) {
    const bool used = !nowhere.one_in(6), here = !order.one_in(4);
    if (used && here) out.push_back(i);
  }
  for (size_t i = out.size(); i > 1; --i)
    std::swap(out[i - 1], out[static_cast<size_t>(order.below(static_cast<int64_t>(i)))]);
  return out;
}

struct Outcome {
  std::vector<at::Tensor> params;
  std::vector<double> norms;
  std::vector<int64_t> calls;
};

Outcome train(const Bag& bag, int64_t ranks, const std::string& optimizer,
              const DistributedDataParallelConfig& ddp, uint64_t seed) {
  Outcome out;
  comm::run_ranks(ranks, [&](comm::Group& world) {
    const std::vector<ModelChunk> chunks = chunks_of(bag);
    std::vector<std::pair<size_t, size_t>> places;
    for (size_t c = 0; c < chunks.size(); ++c)
      for (size_t i = 0; i < chunks[c].params.size(); ++i) places.emplace_back(c, i);
    WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp(chunks, net_config(optimizer),
                                                                    ddp, dp_only(world));
    for (int step = 0; step < 3; ++step) {
      model.optimizer->zero_grad();
      for (size_t k : arrivals(places.size(), seed, world.rank(), step)) {
        const auto& [c, i] = places[k];
        const std::string key = fmt::format("grad {} {} {}", k, step, world.rank());
        model.chunks[c]->add_gradient(i, random_tensor(chunks[c].params[i].spec.shape, key, 0.3));
      }
      const optim::StepResult result = model.optimizer->step();
      model.wait_params();
      check_replicas(chunks, dp_only(world));
      if (world.rank() > 0) continue;
      out.norms.push_back(result.grad_norm);
      out.calls.push_back(result.ns_calls);
    }
    if (world.rank() == 0)
      for (const auto& [c, i] : places)
        out.params.push_back(chunks[c].params[i].tensor.detach().clone());
  });
  return out;
}

TEST(RandomBags, SharingTheWorkChangesNoBit) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Draws draws(seed);
    const Bag bag = draw_bag(draws);
    const int64_t ranks = 1 + draws.below(6);
    const std::string optimizer = draws.one_in(4) ? "adam" : "muon";
    DistributedDataParallelConfig everywhere;
    everywhere.use_distributed_optimizer = false;
    const Outcome expected = train(bag, ranks, optimizer, everywhere, seed);
    for (int variant = 0; variant < 2; ++variant) {
      const Outcome got = train(bag, ranks, optimizer, draw_config(draws), seed);
      EXPECT_EQ(got.norms, expected.norms) << seed;
      EXPECT_EQ(got.calls, expected.calls) << seed;
      for (size_t i = 0; i < expected.params.size(); ++i)
        EXPECT_TRUE(same_bytes(got.params[i], expected.params[i]))
            << "seed " << seed << ", parameter " << i << " on " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace muoncore::parallel
