// The optimizer's state over ranks: named and whole, gathered from any number of them, loaded into
// any number; training goes on as if nothing had happened.
#include <ATen/ops/full.h>
#include <gmock/gmock.h>

#include "muoncore/core/check.h"
#include "tests/parallel/small_net.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's

using State = std::map<std::string, at::Tensor>;

State copy_of(const State& state) {
  State out;
  for (const auto& [key, tensor] : state) out[key] = tensor.clone();
  return out;
}

// Trains steps [first, last) on `ranks` ranks, from `state` and `weights` where they are given.
struct Leg {
  int64_t ranks;
  int first, last;
  DistributedDataParallelConfig ddp = sums();
  bool two_chunks = false;  // as virtual pipeline stages are
};

std::vector<ModelChunk> chunks_of(const SmallNet& net, bool two) {
  std::vector<ModelChunk> chunks{net.chunk()};
  if (!two) return chunks;
  auto& first = chunks[0].params;
  const auto middle = first.begin() + 6;
  ModelChunk second{.params = {middle, first.end()}};
  first.erase(middle, first.end());
  chunks.push_back(std::move(second));
  return chunks;
}

struct Held {
  State state;
  std::vector<at::Tensor> weights;
};

Held train_leg(const NetRun& run, const Leg& leg, const Held* from) {
  Held out;
  comm::run_ranks(leg.ranks, [&](comm::Group& world) {
    at::AutoGradMode gradients_on(true);
    SmallNet net(run.dtype);
    WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp(
        chunks_of(net, leg.two_chunks), run.optimizer, leg.ddp, dp_only(world));
    if (from != nullptr) {
      at::NoGradGuard no_grad;
      for (size_t i = 0; i < from->weights.size(); ++i)
        net.params()[i].tensor.copy_(from->weights[i]);
      model.optimizer->load_state(from->state);
    }
    for (int step = leg.first; step < leg.last; ++step) {
      model.optimizer->zero_grad();
      backward_share(net, model, run, world, step);
      model.optimizer->step();
    }
    const State state = copy_of(model.optimizer->state());  // collective
    check_replicas({net.chunk()}, dp_only(world));
    if (world.rank() == 0) out = {state, values(net)};
  });
  return out;
}

void expect_same(const Held& a, const Held& b, const std::string& what) {
  for (size_t i = 0; i < a.weights.size(); ++i)
    EXPECT_TRUE(same_bytes(a.weights[i], b.weights[i])) << what << i;
  ASSERT_EQ(a.state.size(), b.state.size()) << what;
  for (const auto& [key, tensor] : a.state)
    EXPECT_TRUE(same_bytes(tensor, b.state.at(key))) << what << key;
}

// Gap 3 in memory: resumed equals uninterrupted, bitwise, on the same number of ranks, with another
// layout, other buckets, in two chunks and with overlap.
TEST(OptimizerState, ResumedEqualsUninterruptedBitForBit) {
  for (auto dtype : {at::kFloat, at::kBFloat16})
    for (int64_t ranks : {2, 4}) {
      const NetRun run{.dtype = dtype};
      const Held whole = train_leg(run, {ranks, 0, 4}, nullptr);
      const Held half = train_leg(run, {ranks, 0, 2}, nullptr);
      Leg rest{ranks, 2, 4};
      expect_same(train_leg(run, rest, &half), whole, "resumed");
      rest.two_chunks = true;
      expect_same(train_leg(run, rest, &half), whole, "resumed in two chunks");
      rest.ddp.param_layout = LayoutKind::kMegatron;
      rest.ddp.bucket_size = 500;
      rest.ddp.overlap_grad_reduce = true;
      expect_same(train_leg(run, rest, &half), whole, "resumed in another layout");
    }
}

// Gaps 2 and 10 for data parallelism: what 4 ranks wrote, 1, 2 and 3 read, value for value, and the
// next step is the same up to the order of sums.
TEST(OptimizerState, LoadsOnAnyNumberOfRanks) {
  for (auto dtype : {at::kFloat, at::kBFloat16}) {
    const NetRun run{.dtype = dtype};
    Leg first{4, 0, 2};
    first.ddp.bucket_size = 300;  // several buckets, with padding
    first.ddp.param_layout = LayoutKind::kMegatron;
    const Held half = train_leg(run, first, nullptr);
    for (int64_t ranks : {1, 2, 4}) {
      expect_same(train_leg(run, {ranks, 2, 2}, &half), half, "loaded and written again");
      const Held next = train_leg(run, {ranks, 2, 3}, &half),
                 expected = train_leg(run, {4, 2, 3}, &half);
      for (size_t i = 0; i < next.weights.size(); ++i)
        EXPECT_LE(max_difference(next.weights[i], expected.weights[i]),
                  dtype == at::kFloat ? 5e-6 : 8e-3);
    }
  }
}

// One process reads what ranks wrote, and the other way round: the keys and shapes are the same.
TEST(OptimizerState, IsThatOfOneProcess) {
  const NetRun run{.dtype = at::kBFloat16};
  const Held ranks = train_leg(run, {2, 0, 2}, nullptr);
  SmallNet net(run.dtype);
  auto optimizer = optim::build_optimizer(net.params(), run.optimizer);
  optimizer->load_state(ranks.state);
  for (size_t i = 0; i < ranks.weights.size(); ++i)
    EXPECT_TRUE(same_bytes(net.params()[i].tensor.detach(), ranks.weights[i]));
  const State own = optimizer->state();
  ASSERT_EQ(own.size(), ranks.state.size());
  for (const auto& [key, tensor] : own) EXPECT_TRUE(same_bytes(tensor, ranks.state.at(key))) << key;
}

TEST(OptimizerState, RefusesWhatDoesNotFitAndChangesNothing) {
  const NetRun run;
  const Held half = train_leg(run, {2, 0, 1}, nullptr);
  comm::run_ranks(2, [&](comm::Group& world) {
    SmallNet net;
    WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, run.optimizer,
                                                                    sums(), dp_only(world));
    model.optimizer->load_state(half.state);
    const State before = copy_of(model.optimizer->state());
    State bad = half.state;
    auto& moment = bad.at("optimizer.state.exp_avg.out");
    moment = moment.slice(0, 0, 3);
    // Also the rank that owns no part of it.
    EXPECT_THROW(model.optimizer->load_state(bad), Error);
    const State after = model.optimizer->state();
    for (const auto& [key, tensor] : before) EXPECT_TRUE(same_bytes(tensor, after.at(key))) << key;
  });
}

// scale_rows on owners, then on every rank.
TEST(OptimizerState, ScaledRowsReachEveryRank) {
  for (auto dtype : {at::kFloat, at::kBFloat16})
    for (const std::string optimizer : {"muon", "adam"})
      comm::run_ranks(4, [&](comm::Group& world) {
        SmallNet net(dtype);
        const at::Tensor qkv = net.params()[2].tensor, before = qkv.detach().clone();
        WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp(
            {net.chunk()}, net_config(optimizer), sums(), dp_only(world));
        const at::Tensor factors = at::arange(1, 33).to(at::kFloat) / 16;
        model.optimizer->scale_rows("layers.0.qkv", factors);
        EXPECT_TRUE(
            same_bytes(qkv.detach(), (before.to(at::kFloat) * factors.view({-1, 1})).to(dtype)));
        check_replicas({net.chunk()}, dp_only(world));
      });
}

// Rows are scaled behind a step whose gathers are still under way.
TEST(OptimizerState, ScaledRowsWaitForTheGather) {
  for (bool overlap : {false, true})
    comm::run_ranks(4, [&](comm::Group& world) {
      at::AutoGradMode gradients_on(true);
      NetRun run{.dtype = at::kBFloat16};
      run.ddp.overlap_param_gather = overlap;
      SmallNet net(run.dtype);
      WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, run.optimizer,
                                                                      run.ddp, dp_only(world));
      backward_share(net, model, run, world, 0);
      model.optimizer->step();
      model.optimizer->scale_rows("layers.0.qkv", at::full({32}, 0.5f));
      check_replicas({net.chunk()}, dp_only(world));
      const State state = model.optimizer->state();
      EXPECT_TRUE(same_bytes(net.params()[2].tensor.detach(),
                             state.at("optimizer.state.fp32_param.layers.0.qkv").to(run.dtype)));
    });
}

}  // namespace
}  // namespace muoncore::parallel
