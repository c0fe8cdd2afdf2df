// What ranks tell each other, and updates on 1, 2, 3 and 4 ranks as threads.
#include "muoncore/train/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "muoncore/comm/threads.h"
#include "muoncore/core/check.h"
#include "muoncore/train/rollout_phase.h"
#include "muoncore/train/sft_step.h"
#include "tests/train/train_fixture.h"

namespace muoncore::train {
namespace {

using ::testing::ElementsAre;

TEST(ShareTest, SharesFollowEachOtherAndDifferByOneAtMost) {
  for (const int64_t count : {0, 1, 2, 5, 8, 1000}) {
    for (const int64_t ranks : {1, 2, 3, 4, 7}) {
      int64_t end = 0;
      for (int64_t r = 0; r < ranks; ++r) {
        const Share share = share_of(count, r, ranks);
        EXPECT_EQ(share.begin, end);
        EXPECT_GE(share.size(), count / ranks);
        EXPECT_LE(share.size(), (count + ranks - 1) / ranks);
        end = share.end;
      }
      EXPECT_EQ(end, count);
    }
  }
}

TEST(RanksTest, OneRankKeepsItsOwn) {
  const Ranks ranks;
  EXPECT_EQ(ranks.size(), 1);
  EXPECT_THAT(ranks.sum({1.5, -2.0}, "x"), ElementsAre(1.5, -2.0));
  EXPECT_THAT(ranks.gather(std::vector<int64_t>{3, 4}, 2, "x"), ElementsAre(3, 4));
}

TEST(RanksTest, SumsAndRowsOfAllRanks) {
  comm::run_ranks(3, [](comm::Group& group, comm::GroupFactory& factory) {
    const Ranks ranks(group, factory);
    const auto r = static_cast<double>(ranks.rank());
    // 1e16 + 1 - 1e16 is 0 in this order and 1 in others.
    const std::vector<double> values = {r == 0 ? 1e16 : r == 1 ? 1.0 : -1e16, r};
    EXPECT_THAT(ranks.sum(values, "x"), ElementsAre(0.0, 3.0));
    EXPECT_THAT(ranks.max({r, -r}, "x"), ElementsAre(2.0, 0.0));
    EXPECT_TRUE(ranks.max(torch::full({2, 2}, r), "x").equal(torch::full({2, 2}, 2.0)));

    // 5 items of 2 rows: shares of 1, 2 and 2 items; then 2 items, of which rank 0 has none.
    const at::Tensor all = torch::arange(30).view({10, 3});
    const Share mine = ranks.share(5);
    EXPECT_TRUE(ranks.gather(all.slice(0, 2 * mine.begin, 2 * mine.end), 5, "x", 2).equal(all));
    const Share two = ranks.share(2);
    std::vector<double> own;
    for (int64_t i = two.begin; i < two.end; ++i) own.push_back(static_cast<double>(i) + 0.5);
    EXPECT_THAT(ranks.gather(own, 2, "x"), ElementsAre(0.5, 1.5));
  });
}

// The whole batch is on every rank, whoever computed it.
TEST(RanksTest, LogProbabilitiesAreThoseOfOneRank) {
  RolloutBatch batch = random_batch({1, -1, 0.5, 2, -0.25, 1, 1});
  Arm one("adam");
  const LogProbPass expected = log_prob_pass(*one.model, batch, 0.7, 2, true, one.ranks);
  for (const int64_t n : {2, 3, 8}) {  // 8: a rank without a row
    comm::run_ranks(n, [&](comm::Group& group, comm::GroupFactory& factory) {
      Arm arm("adam");
      const Ranks ranks(group, factory);
      const LogProbPass pass = log_prob_pass(*arm.model, batch, 0.7, 2, true, ranks);
      EXPECT_LT(largest_difference({pass.log_probs}, {expected.log_probs}), 1e-5);
      EXPECT_NEAR(pass.mean_entropy, expected.mean_entropy, 1e-6);
    });
  }
}

// A model on the ranks of a group, as set_up_optimizer makes it.
struct RankArm {
  std::shared_ptr<models::CausalLM> model;
  OptimizerSetup setup;
  PhaseRecorder recorder{c10::Device(c10::DeviceType::CPU)};
  const Ranks& ranks;

  RankArm(const std::string& kind, const Ranks& r, bool overlap = false) : ranks(r) {
    model = std::make_shared<models::CausalLM>(tiny_config());
    model->init_weights(7);
    optim::OptimizerConfig config;
    config.optimizer = kind;
    config.lr = 1e-2;
    config.total_training_steps = 100;
    if (kind == "muon") config.muon_fp32_matmul_prec = "highest";
    parallel::ModelChunk chunk;
    for (const auto& [spec, tensor] : optimizer_params(*model))
      chunk.params.push_back({spec, tensor});
    parallel::DistributedDataParallelConfig ddp;
    ddp.average_gradients = false;
    ddp.overlap_grad_reduce = ddp.overlap_param_gather = overlap;
    if (overlap) ddp.bucket_size = 1000;
    parallel::ParallelGroups groups;
    groups.world = groups.dp = ranks.gradients();
    setup.wrapped =
        parallel::wrap_model_chunks_with_layerwise_aware_ddp({chunk}, config, ddp, groups);
    setup.scheduler = std::make_unique<optim::OptimizerParamScheduler>(
        *setup.wrapped.optimizer, optim::scheduler_options(config));
  }
  Trainee trainee() { return trainee_of(*model, setup, ranks); }
  std::vector<at::Tensor> weights() {
    setup.wrapped.wait_params();
    std::vector<at::Tensor> out;
    for (const auto& [name, tensor] : model->named_params()) out.push_back(tensor.detach().clone());
    return out;
  }
};

UpdateSettings settings_of(int64_t mini_batch_rows) {
  UpdateSettings out;
  out.mini_batch_rows = mini_batch_rows;
  out.micro_batch_rows = 1;
  out.calculate_entropy = true;
  return out;
}

// Two updates of a batch of 8 rows on n ranks: weights and metrics of rank 0. All ranks must have
// the same.
struct Updated {
  std::vector<at::Tensor> weights;
  Metrics metrics;
};
Updated update_on(int64_t n, const std::string& kind, bool overlap = false) {
  Updated result;
  std::mutex mutex;
  std::vector<Updated> all(static_cast<size_t>(n));
  comm::run_ranks(n, [&](comm::Group& group, comm::GroupFactory& factory) {
    const Ranks ranks(group, factory);
    RankArm arm(kind, ranks, overlap);
    RolloutBatch batch = random_batch({1, -1, 0.5, 2, -0.25, 1, 1, -2});
    Trainee trainee = arm.trainee();
    batch.old_log_probs = log_prob_pass(*arm.model, batch, 1.0, 2, false, ranks).log_probs;
    Metrics metrics = update_actor(trainee, batch, settings_of(4), 1, arm.recorder);
    metrics.erase("actor/optim/state_bytes");
    const std::lock_guard lock(mutex);
    all[static_cast<size_t>(ranks.rank())] = {arm.weights(), metrics};
  });
  for (const Updated& one : all) {
    EXPECT_TRUE(same_bytes(one.weights, all[0].weights));
    EXPECT_EQ(one.metrics, all[0].metrics);
  }
  return all[0];
}

TEST(RankUpdateTest, AnyNumberOfRanksIsOneProcess) {
  for (const std::string kind : {"adam", "muon"}) {
    const Updated two = update_on(2, kind);
    for (const int64_t n : {1, 3, 4, 6}) {  // 3 and 6: uneven shares, and a rank without a row
      const Updated more = update_on(n, kind);
      EXPECT_LT(largest_difference(more.weights, two.weights), 1e-5) << kind << " on " << n;
      for (const auto& [name, value] : two.metrics)
        EXPECT_NEAR(more.metrics.at(name), value, 1e-4 * (1.0 + std::abs(value))) << name;
    }
    const Updated overlapped = update_on(2, kind, /*overlap=*/true);
    EXPECT_TRUE(same_bytes(overlapped.weights, two.weights)) << kind;
    for (const auto& [name, value] : two.metrics)  // the RMS is summed piece by piece
      EXPECT_NEAR(overlapped.metrics.at(name), value,
                  name.find("update_rms") == std::string::npos ? 0.0 : 1e-6)
          << name;
  }
}

// The first 5 examples, of which each rank has its share, and the mean loss of all 11.
TEST(RankUpdateTest, SftOnAnyNumberOfRanksIsOneProcess) {
  const ListData data;
  Arm one("adam");
  const double held_out = sft_loss(*one.model, data, 3, 0, 2, one.ranks);
  Trainee trainee = one.trainee();
  const Metrics expected = sft_update(trainee, data::sft_batch(data, 0, 5, 0), 2, one.recorder);
  for (const int64_t n : {2, 3, 5}) {
    comm::run_ranks(n, [&](comm::Group& group, comm::GroupFactory& factory) {
      const Ranks ranks(group, factory);
      RankArm arm("adam", ranks);
      EXPECT_NEAR(sft_loss(*arm.model, data, 3, 0, 2, ranks), held_out, 1e-6);
      const Share share = ranks.share(5);
      Trainee mine = arm.trainee();
      const Metrics metrics =
          sft_update(mine, data::sft_batch(data, share.begin, share.size(), 0), 2, arm.recorder);
      for (const char* name : {"train/loss", "train/grad_norm", "train/global_tokens"})
        EXPECT_NEAR(metrics.at(name), expected.at(name), 2e-5) << name << " on " << n;
    });
  }
}

TEST(RankUpdateTest, AnAdvantageThatIsNotFiniteOnOneRankSkipsTheStepOnAll) {
  comm::run_ranks(2, [&](comm::Group& group, comm::GroupFactory& factory) {
    const Ranks ranks(group, factory);
    RankArm arm("muon", ranks);
    const auto before = arm.weights();
    RolloutBatch batch = random_batch({1, 1, 1, std::nan("")});
    Trainee trainee = arm.trainee();
    const Metrics metrics = update_actor(trainee, batch, settings_of(4), 1, arm.recorder);
    EXPECT_EQ(metrics.at("actor/optim/nonfinite"), 1.0);
    EXPECT_TRUE(same_bytes(arm.weights(), before));
  });
}

TEST(RankUpdateTest, OnlyRank0WorksAndTheOthersWait) {
  std::atomic<int> runs = 0;
  comm::run_ranks(
      3,
      [&](comm::Group& group, comm::GroupFactory& factory) {
        const Ranks ranks(group, factory);
        ranks.on_rank_0(
            [&] {
              std::this_thread::sleep_for(std::chrono::milliseconds(1500));
              ++runs;
            },
            "work");
        EXPECT_EQ(runs, 1);
      },
      std::chrono::milliseconds(1000));  // longer than a collective may take
  EXPECT_THROW(comm::run_ranks(2,
                               [&](comm::Group& group, comm::GroupFactory& factory) {
                                 const Ranks ranks(group, factory);
                                 ranks.on_rank_0([] { fail("disk full"); }, "work");
                               }),
               Error);
}

}  // namespace
}  // namespace muoncore::train
