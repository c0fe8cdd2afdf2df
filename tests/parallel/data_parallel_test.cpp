// The same global batch on 1, 2 and 4 ranks: one process's weights, whatever the layout, the
// buckets and the overlap.
#include <ATen/ops/exp2.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/log2.h>
#include <gmock/gmock.h>

#include <cmath>

#include "muoncore/core/check.h"
#include "tests/parallel/small_net.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's

void expect_near(const NetResult& got, const NetResult& expected, const std::string& what) {
  for (size_t step = 0; step < expected.steps.size(); ++step)
    for (size_t i = 0; i < expected.steps[step].size(); ++i) {
      const at::Tensor a = got.steps[step][i], b = expected.steps[step][i];
      const at::Tensor excess = (a - b).abs() - (2e-6 + 1e-5 * b.abs());
      EXPECT_LE(excess.max().item<double>(), 0.0)
          << what << ", step " << step << ", parameter " << i;
    }
}

DistributedDataParallelConfig replicated() {
  DistributedDataParallelConfig config = sums();
  config.use_distributed_optimizer = false;
  return config;
}

TEST(DataParallel, OneTwoAndFourRanksTrainOneModelInFp32) {
  for (const std::string optimizer : {"muon", "adam"})
    for (const auto& ddp : {sums(), replicated()}) {
      NetRun run{.optimizer = net_config(optimizer), .ddp = ddp};
      const NetResult alone = train_alone(run);
      for (int64_t ranks : {1, 2, 4}) {
        const NetResult got = train_on(ranks, run);
        const std::string what = fmt::format("{} on {} ranks", optimizer, ranks);
        expect_near(got, alone, what);
        for (size_t step = 0; step < got.results.size(); ++step) {
          EXPECT_NEAR(got.results[step].grad_norm / alone.results[step].grad_norm, 1.0, 2e-6)
              << what;
          EXPECT_EQ(got.results[step].ns_calls, alone.results[step].ns_calls) << what;
          for (const auto& [name, rms] : alone.results[step].update_rms)
            EXPECT_NEAR(got.results[step].update_rms.at(name), rms, 1e-3 * rms) << what << name;
        }
      }
    }
}

// Buffers of one rank change nothing at all.
TEST(DataParallel, OneRankWithBuffersIsOneProcessBitForBit) {
  for (const std::string optimizer : {"muon", "adam"})
    for (auto dtype : {at::kFloat, at::kBFloat16}) {
      NetRun run{.dtype = dtype, .optimizer = net_config(optimizer)};
      run.ddp.grad_reduce_in_fp32 = false;
      expect_same_bytes(train_on(1, run), train_alone(run), optimizer);
    }
}

// Gradients of micro-batches are rounded to bf16 where the batch is cut, so ranks see others; a
// learning rate as in use.
TEST(DataParallel, Bf16StaysWithinOneUlpOnNearlyAllElements) {
  NetRun run{.dtype = at::kBFloat16, .micro_batches = 2};
  run.optimizer.lr = 1e-3;
  const NetResult one = train_on(1, run);
  const SmallNet fresh(at::kBFloat16);
  for (int64_t ranks : {2, 4}) {
    const NetResult got = train_on(ranks, run);
    int64_t total = 0, off = 0, moved = 0;
    for (size_t i = 0; i < one.params.size(); ++i) {
      const at::Tensor a = got.params[i].to(at::kFloat), b = one.params[i].to(at::kFloat);
      const at::Tensor ulp = at::exp2(at::floor(at::log2(b.abs())) - 7);
      off += ((a - b).abs() > ulp).sum().item<int64_t>();
      moved += (b != fresh.params()[i].tensor.detach().to(at::kFloat)).sum().item<int64_t>();
      total += a.numel();
    }
    EXPECT_LE(off, total / 100) << ranks;
    EXPECT_GE(moved, total / 10);
  }
}

// Gap 12: overlap on == overlap off, bitwise; and no layout or bucket size changes a bit.
TEST(DataParallel, OverlapLayoutAndBucketsChangeNoBit) {
  for (auto dtype : {at::kFloat, at::kBFloat16})
    for (int64_t ranks : {2, 4}) {
      NetRun plain{.dtype = dtype, .micro_batches = 2};
      const NetResult expected = train_on(ranks, plain);
      for (bool grads : {false, true})
        for (bool params : {false, true})
          for (auto layout : {LayoutKind::kBalanced, LayoutKind::kMegatron})
            for (std::optional<int64_t> bucket : {std::optional<int64_t>(), {1}, {700}}) {
              NetRun run = plain;
              run.ddp.overlap_grad_reduce = grads;
              run.ddp.overlap_param_gather = params;
              run.ddp.param_layout = layout;
              run.ddp.bucket_size = bucket;
              expect_same_bytes(train_on(ranks, run), expected,
                                fmt::format("{} ranks, overlap {} {}, {}, bucket {}", ranks, grads,
                                            params, to_string(layout), bucket.value_or(0)));
            }
      NetRun run = plain;
      run.ddp.use_distributed_optimizer = false;
      expect_same_bytes(train_on(ranks, run), expected, "replicated");
    }
}

TEST(DataParallel, TheMeanIsTheSumDividedByTheRanks) {
  NetRun mean;
  mean.ddp.average_gradients = true;
  mean.optimizer.clip_grad = 0;
  NetRun sum;
  sum.optimizer.clip_grad = 0;
  const NetResult means = train_on(4, mean), sums = train_on(4, sum);
  EXPECT_EQ(means.results[0].grad_norm, sums.results[0].grad_norm / 4);
}

// A gradient that autograd never makes is none on all ranks: nothing hangs, and the parameters are
// left alone as on one rank. One that only some ranks have counts everywhere.
TEST(DataParallel, UnusedParametersAreLeftAlone) {
  for (bool overlap : {false, true}) {
    NetRun run{.skip_mlp = 1};
    run.ddp.overlap_grad_reduce = overlap;
    run.ddp.bucket_size = 300;
    const NetResult alone = train_alone(run);
    expect_near(train_on(2, run), alone, "unused");
    const SmallNet fresh;
    size_t kept = 0;
    for (size_t i = 0; i < alone.params.size(); ++i)
      kept += same_bytes(alone.params[i], fresh.params()[i].tensor) ? 1 : 0;
    EXPECT_EQ(kept, 3u);  // up, up_bias, down of one layer
    EXPECT_EQ(alone.results[0].ns_calls, 3 + 1 + 2 + 3 + 1);
  }
}

TEST(DataParallel, AGradientOfOneRankAloneCountsOnAll) {
  comm::run_ranks(2, [](comm::Group& world) {
    at::AutoGradMode gradients_on(true);
    SmallNet net;
    DistributedDataParallelConfig ddp = sums();
    ddp.overlap_grad_reduce = true;
    ddp.bucket_size = 300;
    WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, net_config(),
                                                                    ddp, dp_only(world));
    // only rank 1 uses the MLP of layer 0
    net.loss(0, 4, 0, world.rank() == 0 ? 0 : -1).backward();
    const optim::StepResult result = model.optimizer->step();
    EXPECT_EQ(result.ns_calls, 2 * (3 + 1 + 2));
    check_replicas({net.chunk()}, dp_only(world));
    const SmallNet fresh;
    EXPECT_FALSE(same_bytes(net.params()[4].tensor, fresh.params()[4].tensor));
  });
}

// Buckets leave while backward runs, and only then.
TEST(DataParallel, OverlapStartsBeforeTheStep) {
  for (bool overlap : {false, true})
    comm::run_ranks(2, [&](comm::Group& world) {
      at::AutoGradMode gradients_on(true);
      SmallNet net;
      DistributedDataParallelConfig ddp = sums();
      ddp.overlap_grad_reduce = overlap;
      ddp.bucket_size = 300;
      WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, net_config(),
                                                                      ddp, dp_only(world));
      auto sent = [&] { return world.bytes_sent(comm::Collective::kReduceScatter); };
      {
        const NoSync no_sync(*model.schedule);
        net.loss(0, 4, 0).backward();
      }
      EXPECT_EQ(sent(), 0);
      net.loss(4, 8, 0).backward();
      const int64_t during = sent();
      model.optimizer->step();
      EXPECT_EQ(during, overlap ? sent() : 0);
      EXPECT_GT(sent(), 0);
    });
}

// Gap 11's check finds one bit.
TEST(DataParallel, ReplicasThatDifferInOneBitAreFound) {
  comm::run_ranks(3, [](comm::Group& world) {
    const SmallNet net(at::kBFloat16);
    check_replicas({net.chunk()}, dp_only(world));
    if (world.rank() == 1)
      net.params()[8].tensor.detach().view(at::kShort).view(-1)[3].bitwise_xor_(1);
    EXPECT_THROW(check_replicas({net.chunk()}, dp_only(world)), Error);
  });
}

}  // namespace
}  // namespace muoncore::parallel
