// Bytes that ranks really send in one step, counted by the groups: the formula of plan_bytes.h to
// the byte, and layer-wise Muon beside ZeRO-1 AdamW.
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "muoncore/comm/recorder.h"
#include "muoncore/parallel/plan_bytes.h"
#include "tests/parallel/small_net.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's

// Per rank, of one step after the first.
struct Sent {
  std::vector<int64_t> counted, formula;
  double mean() const {
    return static_cast<double>(std::reduce(counted.begin(), counted.end())) /
           static_cast<double>(counted.size());
  }
  int64_t worst() const { return *std::max_element(counted.begin(), counted.end()); }
};

int64_t bucket_bytes(const comm::Group& group) {
  return group.bytes_sent(comm::Collective::kReduceScatter) +
         group.bytes_sent(comm::Collective::kAllGather);
}

Sent count(int64_t ranks, const std::string& optimizer, at::ScalarType dtype,
           const DistributedDataParallelConfig& ddp) {
  Sent sent{std::vector<int64_t>(ranks), std::vector<int64_t>(ranks)};
  comm::run_ranks(ranks, [&](comm::Group& world) {
    SmallNet net(dtype, /*layers=*/6);
    const ModelChunk chunk = net.chunk();
    WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({chunk}, net_config(optimizer),
                                                                    ddp, dp_only(world));
    for (const auto& plan : model.plans[0])
      sent.formula[world.rank()] += bytes_sent({.whole = plan.layout, .cut = {}}, world.rank(),
                                               {.param = dtype == at::kFloat ? 4 : 2, .grad = 4});
    for (size_t i = 0; i < chunk.params.size(); ++i)
      model.chunks[0]->add_gradient(i, at::ones(chunk.params[i].tensor.sizes()));
    const int64_t before = bucket_bytes(world);
    model.optimizer->step();
    sent.counted[world.rank()] = bucket_bytes(world) - before;
  });
  return sent;
}

TEST(BytesSent, AreTheFormulaToTheByte) {
  for (int64_t ranks : {1, 2, 3, 8})
    for (auto dtype : {at::kFloat, at::kBFloat16})
      for (const std::string optimizer : {"muon", "adam"})
        for (auto layout : {LayoutKind::kBalanced, LayoutKind::kMegatron}) {
          DistributedDataParallelConfig ddp;
          ddp.param_layout = layout;
          ddp.bucket_size = 2000;
          const Sent sent = count(ranks, optimizer, dtype, ddp);
          EXPECT_EQ(sent.counted, sent.formula) << ranks << optimizer << to_string(layout);
        }
}

// The mean over ranks is at most ZeRO-1 AdamW's, the worst rank at most 1.1 times its own.
TEST(BytesSent, LayerWiseMuonSendsNoMoreThanZero1AdamW) {
  for (int64_t ranks : {2, 4})
    for (auto dtype : {at::kFloat, at::kBFloat16}) {
      const Sent muon = count(ranks, "muon", dtype, {}), adam = count(ranks, "adam", dtype, {});
      EXPECT_LE(muon.mean(), adam.mean() * 1.001) << ranks;
      EXPECT_LE(static_cast<double>(muon.worst()), 1.1 * static_cast<double>(adam.worst()))
          << ranks;
    }
}

// At sizes for which no machine is here: every rank's own step, with a group that performs nothing
// and counts. What a rank stores falls as 1 / dp as far as there are matrices to share.
TEST(BytesSent, CountedByTheRecorderUpTo64Ranks) {
  const double all = [] {
    SmallNet net(at::kBFloat16, 32);
    double bytes = 0;
    for (const auto& p : net.params())
      bytes += (p.spec.role == ParamRole::kMatrix ? 8.0 : 12.0) * p.tensor.numel();
    return bytes;
  }();
  for (int64_t ranks : {4, 16, 64}) {
    std::map<std::string, std::vector<int64_t>> sent;
    int64_t stored = 0;
    for (const std::string optimizer : {"muon", "adam"})
      for (int64_t rank = 0; rank < ranks; ++rank) {
        std::vector<int64_t> members(ranks);
        std::iota(members.begin(), members.end(), 0);
        comm::RecorderFactory factory(rank, ranks);
        const auto world = factory.make("world", members);
        SmallNet net(at::kBFloat16, 32);
        const ModelChunk chunk = net.chunk();
        WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp(
            {chunk}, net_config(optimizer), {}, dp_only(*world));
        for (size_t i = 0; i < chunk.params.size(); ++i)
          model.chunks[0]->add_gradient(i, at::ones(chunk.params[i].tensor.sizes()));
        model.optimizer->step();
        sent[optimizer].push_back(bucket_bytes(*world));
        if (optimizer == "muon")
          stored =
              std::max(stored, model.optimizer->state_bytes() + model.optimizer->master_bytes());
      }
    auto mean = [&](const std::string& name) {
      return static_cast<double>(std::reduce(sent[name].begin(), sent[name].end())) /
             static_cast<double>(ranks);
    };
    EXPECT_LE(mean("muon"), mean("adam") * 1.002) << ranks;
    EXPECT_LE(static_cast<double>(*std::max_element(sent["muon"].begin(), sent["muon"].end())),
              1.1 * mean("adam"))
        << ranks;
    EXPECT_LE(static_cast<double>(stored), 1.15 * all / static_cast<double>(ranks)) << ranks;
  }
}

// Beside the buckets a step sends little: one number per parameter, and four sums as integers.
TEST(BytesSent, TheRestOfAStepIsSmall) {
  std::vector<int64_t> rest(4);
  comm::run_ranks(4, [&](comm::Group& world) {
    SmallNet net;
    const ModelChunk chunk = net.chunk();
    WrappedModel model =
        wrap_model_chunks_with_layerwise_aware_ddp({chunk}, net_config(), {}, dp_only(world));
    for (size_t i = 0; i < chunk.params.size(); ++i)
      model.chunks[0]->add_gradient(i, at::ones(chunk.params[i].tensor.sizes()));
    const int64_t before = world.bytes_sent() - bucket_bytes(world);
    model.optimizer->step();
    rest[world.rank()] = world.bytes_sent() - bucket_bytes(world) - before;
  });
  for (int64_t bytes : rest) EXPECT_LE(bytes, 3 * (14 * 4 + 8 * 4 * 137));
}

}  // namespace
}  // namespace muoncore::parallel
