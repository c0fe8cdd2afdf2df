// The planner's figures: those that the project promises, those measured or published elsewhere,
// and small cases counted by hand.
#include "muoncore/parallel/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "muoncore/core/check.h"

namespace muoncore::parallel {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Plan plan_of(const char* model, ParallelSizes sizes, LayoutKind kind = LayoutKind::kBalanced) {
  PlanOptions options;
  options.sizes = sizes;
  options.layout = kind;
  options.bucket_size = default_bucket_size(sizes.dp);
  return make_plan(plan_model(model), options);
}

double mean(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

int64_t most(const std::vector<int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

TEST(PlanModels, HaveTheirPublishedCounts) {
  EXPECT_EQ(plan_model("gpt2-small").numel(), 124'439'808);
  EXPECT_EQ(plan_model("llama-1b").numel(), 1'235'814'400);
  const PlanModel qwen = plan_model("qwen3-30b-a3b");
  EXPECT_EQ(qwen.numel(), 30'532'122'624);
  EXPECT_EQ(qwen.params.size(), 18'867u);  // tensors of the checkpoint
  // rl.md 4.5: with the routers, as Megatron routes them.
  EXPECT_EQ(plan_of("qwen3-30b-a3b", {}).muon_params, 29'909'581'824);
  EXPECT_EQ(plan_of("gpt2-small", {}).muon_matrices, 48);
}

TEST(PlanModels, AnUnknownNameIsRefusedWithTheNearest) {
  EXPECT_THAT(
      [] { plan_model("gpt2-smal"); },
      ThrowsMessage<Error>("model 'gpt2-smal' is not known to the planner: it knows "
                           "gpt2-small, llama-1b, qwen3-30b-a3b; did you mean gpt2-small?"));
  EXPECT_THAT([] { plan_model(""); }, ThrowsMessage<Error>(HasSubstr("model ''")));
}

struct Target {
  const char* model;
  int64_t dp;
  double most;
};
class BalancedTargets : public testing::TestWithParam<Target> {};

TEST_P(BalancedTargets, AreMet) {
  const auto [model, dp, most_allowed] = GetParam();
  const Plan plan = plan_of(model, {dp});
  EXPECT_LE(plan.ns.imbalance, most_allowed);
  EXPECT_GE(plan.ns.imbalance, plan.ns.bound - 1e-12);
  EXPECT_LE(plan.padding_fraction, 0.02);
  EXPECT_LE(plan.padding_fraction_cut, 0.02);
  // The gradient and parameter traffic of Muon is that of ZeRO-1 AdamW, and no rank sends much
  // more.
  EXPECT_LE(mean(plan.muon.sent), mean(plan.adamw.sent) * (1 + 1e-12));
  EXPECT_LE(most(plan.muon.sent), most(plan.adamw.sent) * 1.1);
}

INSTANTIATE_TEST_SUITE_P(
    Issue5, BalancedTargets,
    testing::Values(Target{"gpt2-small", 2, 1.10}, Target{"gpt2-small", 4, 1.10},
                    Target{"gpt2-small", 8, 1.10}, Target{"gpt2-small", 16, 1.10},
                    Target{"llama-1b", 2, 1.02}, Target{"llama-1b", 3, 1.02},
                    Target{"llama-1b", 4, 1.02}, Target{"llama-1b", 8, 1.02},
                    Target{"llama-1b", 16, 1.02}, Target{"llama-1b", 32, 1.09},
                    Target{"qwen3-30b-a3b", 2, 1.02}, Target{"qwen3-30b-a3b", 8, 1.02},
                    Target{"qwen3-30b-a3b", 16, 1.02}, Target{"qwen3-30b-a3b", 32, 1.02},
                    Target{"qwen3-30b-a3b", 64, 1.02}),
    [](const auto& info) {
      std::string name = fmt::format("{}_dp{}", info.param.model, info.param.dp);
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(Plan, MixturesOfExpertsStayEvenWithExpertParallelism) {
  for (ParallelSizes sizes : {ParallelSizes{8, 2, 8}, ParallelSizes{64, 1, 8},
                              ParallelSizes{16, 2, 16, 2}, ParallelSizes{32, 2, 8, 1, 2}}) {
    const Plan plan = plan_of("qwen3-30b-a3b", sizes);
    EXPECT_LE(plan.ns.imbalance, 1.02);
    EXPECT_LE(plan.padding_fraction, 0.02);
    EXPECT_LE(most(plan.muon.sent), most(plan.adamw.sent) * 1.1);
  }
  // With one copy of each expert nothing can even out 96 large dense matrices on 64 ranks.
  EXPECT_NEAR(plan_of("qwen3-30b-a3b", {64, 1, 64}).ns.imbalance, 1.022, 0.001);
}

// mcore.md 3.10: Megatron-Core 0.19.2 on its own functions, GPT 124M, the buffer of Muon's
// matrices.
TEST(Plan, MegatronsLayoutHasItsPublishedFigures) {
  struct Row {
    int64_t dp;
    double padding, imbalance;
  };
  for (auto [dp, padding, imbalance] :
       {Row{8, 0.333, 1.22}, Row{16, 0.778, 1.56}, Row{32, 0.778, 1.78}}) {
    const Plan plan = plan_of("gpt2-small", {dp}, LayoutKind::kMegatron);
    EXPECT_NEAR(plan.padding_fraction, padding, 0.0005);
    EXPECT_NEAR(plan.ns_upstream.imbalance, imbalance, 0.005);
  }
}

// PR verl#7120 measured 46.63 GiB with AdamW and 39.66 with Muon on 16 GPUs (rl.md 4.5).
TEST(Plan, TheGapOfThePullRequestIsReproduced) {
  const Plan plan = plan_of("qwen3-30b-a3b", {8, 2, 8});
  EXPECT_EQ(fmt::format("{:.2f}", plan.adamw_minus_muon_gib), "6.97");
  // To the byte: 4 bytes less for every Muon parameter where it is owned. A rank's share: half of
  // attention over 8, all of the routers over 8, an eighth of the experts over 2.
  const double owned = 905'969'664.0 / 2 / 8 + 12'582'912.0 / 8 + 28'991'029'248.0 / 8 / 2;
  EXPECT_DOUBLE_EQ(plan.adamw_minus_muon_gib, owned * 4 / (1 << 30));
  // The rest of that table: sizes, then GiB saved.
  struct Row {
    ParallelSizes sizes;
    const char* gap;
  };
  for (const Row& row :
       {Row{{8, 2, 8, 1, 2}, "6.97"}, Row{{16, 1, 16}, "6.96"}, Row{{2, 4, 8}, "13.95"},
        Row{{8, 4, 8}, "3.49"}, Row{{32, 2, 8}, "1.74"}, Row{{1, 1, 1}, "111.42"}})
    EXPECT_EQ(fmt::format("{:.2f}", plan_of("qwen3-30b-a3b", row.sizes).adamw_minus_muon_gib),
              row.gap);
}

// rl.md 4.5, 16 GPUs: weights and gradients 24.59 GiB, AdamW 21.34, Muon 14.37.
TEST(Plan, BytesByCategory) {
  constexpr double kGib = 1 << 30;
  const Plan plan = plan_of("qwen3-30b-a3b", {8, 2, 8});
  RankBytes adamw, muon;
  for (const RankBytes& b : plan.adamw.bytes) adamw += b;
  for (const RankBytes& b : plan.muon.bytes) muon += b;
  EXPECT_NEAR((adamw.parameters + adamw.gradients) / 16 / kGib, 24.59, 0.005);
  EXPECT_NEAR(adamw.optimizer() / 16 / kGib, 21.34, 0.005);
  EXPECT_NEAR(muon.optimizer() / 16 / kGib, 14.37, 0.005);
  EXPECT_EQ(adamw.momentum, 0);
  EXPECT_EQ(adamw.masters, muon.masters);
  EXPECT_EQ(muon.masters, muon.momentum + muon.exp_avg);
  EXPECT_EQ(muon.exp_avg, muon.exp_avg_sq);

  PlanOptions fp32;
  fp32.sizes = {4};
  fp32.bytes = {4, 4};
  const Plan plain = make_plan(plan_model("gpt2-small"), fp32);
  int64_t exp_avg = 0, momentum = 0;
  for (const RankBytes& b : plain.muon.bytes) {
    EXPECT_EQ(b.masters, 0);  // the parameters are their own
    EXPECT_EQ(b.parameters, b.gradients);
    exp_avg += b.exp_avg, momentum += b.momentum;
  }
  EXPECT_EQ(exp_avg + momentum, 4 * plain.params);
  EXPECT_EQ(momentum, 4 * plain.muon_params);
}

TEST(Plan, TheBoundSaysWhenMatricesAreTooFew) {
  const Plan few = plan_of("gpt2-small", {64});
  // 18 of 672 parts on 64 ranks: the mean is 10.5.
  EXPECT_NEAR(few.ns.bound, 18 / 10.5, 1e-12);
  EXPECT_NEAR(few.ns.imbalance, few.ns.bound, 1e-12);
  EXPECT_EQ(few.ranks_without_matrices, 64 - 48);
  // 48 on 32: some rank has two, and so 14 + 14 of a mean of 21. Llama: 18 + 18 of 33.28.
  const Plan pairs = plan_of("gpt2-small", {32});
  EXPECT_NEAR(pairs.ns.bound, 28.0 / 21, 1e-12);
  EXPECT_NEAR(pairs.ns.imbalance, pairs.ns.bound, 1e-12);
  const Plan llama = plan_of("llama-1b", {32});
  EXPECT_NEAR(llama.ns.bound, 36 * 32 / (16 * 66.5625), 1e-9);
  EXPECT_NEAR(llama.ns.imbalance, llama.ns.bound, 1e-3);
  const Plan enough = plan_of("gpt2-small", {16});
  EXPECT_EQ(enough.ns.bound, 1);
  EXPECT_EQ(enough.ns.imbalance, 1);
  EXPECT_EQ(enough.ranks_without_matrices, 0);
}

TEST(Plan, ActualCostsFollowTheSplit) {
  PlanOptions options;
  options.sizes = {4};
  const PlanModel model = plan_model("gpt2-small");
  const Plan split = make_plan(model, options);
  EXPECT_EQ(split.ns.imbalance, 1);
  EXPECT_EQ(split.ns_actual.bound, 1);
  options.split_blocks = false;
  const Plan fused = make_plan(model, options);
  EXPECT_EQ(fused.ns_actual.imbalance, fused.ns.imbalance);
  EXPECT_EQ(fused.layout_hash, split.layout_hash);  // what is balanced is the stored cost
}

// One layer of 2 + 1 matrices on 2 pipeline stages of 2 tensor-parallel ranks, by hand.
TEST(Plan, PipelineAndTensorParallelismCutWhatTheyShould) {
  DecoderShape shape;
  shape.vocab = 101;
  shape.hidden = 64;
  shape.intermediate = 128;
  shape.layers = 2;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 16;
  shape.tied_embeddings = true;
  PlanOptions options;
  options.sizes = {2, 2, 1, 2};
  options.bytes = {4, 4};
  const PlanModel model = plan_decoder("tiny", shape);
  EXPECT_EQ(model.numel(), 101 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 128) + 64);
  const Plan plan = make_plan(model, options);
  ASSERT_EQ(plan.muon.bytes.size(), 8u);
  // A stage: half of a layer's matrices, its two norms, half of the embedding (51 rows) on both;
  // the last norm on the second.
  const int64_t matrices = (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64) / 2, rest = 51 * 64 + 128;
  for (int rank = 0; rank < 8; ++rank) {
    const int64_t numel = matrices + rest + (rank < 4 ? 0 : 64);
    EXPECT_EQ(plan.muon.bytes[rank].parameters, 4 * numel);
    EXPECT_EQ(plan.adamw.bytes[rank].parameters, 4 * numel);
    EXPECT_EQ(plan.muon.bytes[rank].momentum + plan.muon.bytes[rank ^ 2].momentum, 4 * matrices);
  }
}

TEST(Plan, SizesThatDoNotFitAreRefused) {
  auto refused = [](const char* model, ParallelSizes sizes, const char* why) {
    EXPECT_THAT([&] { plan_of(model, sizes); }, ThrowsMessage<Error>(why));
  };
  refused("gpt2-small", {0}, "dp 0 must be at least 1");
  refused("gpt2-small", {1, 1, 1, -2}, "pp -2 must be at least 1");
  refused("gpt2-small", {1, 5}, "tp 5 does not divide the 12 attention heads of gpt2-small");
  refused("llama-1b", {1, 16}, "tp 16 does not divide the 8 key and value heads of llama-1b");
  refused("llama-1b", {1, 1, 1, 3}, "pp 3 does not divide the 16 layers of llama-1b");
  refused("llama-1b", {2, 1, 2}, "llama-1b has no experts: ep and etp must be 1, not 2 and 1");
  refused("qwen3-30b-a3b", {3, 1, 3}, "ep 3 does not divide the 128 experts of qwen3-30b-a3b");
  refused("qwen3-30b-a3b", {2, 1, 4},
          "etp 1 * ep 4 * pp 1 does not divide the 2 ranks (dp * tp * pp)");
  refused("qwen3-30b-a3b", {5, 1, 1, 1, 5},
          "etp 5 does not divide the 768 rows of model.layers.0.mlp.experts.0.gate_proj.weight");
  PlanOptions options;
  options.bucket_size = 0;
  EXPECT_THAT([&] { make_plan(plan_model("llama-1b"), options); },
              ThrowsMessage<Error>("bucket_size 0 must be at least 1"));
  refused("gpt2-small", {16384, 2},
          "dp 16384 * tp 2 * pp 1 is more than the 16384 ranks that the planner takes");
}

TEST(PlanBytes, CountWhatARankHoldsAndSends) {
  const std::vector<LayoutParam> params{{"b", {100}}, {"w", {64, 4}, true}, {"v", {32, 2}, true}};
  const ParamLayout layout = compute_layout(LayoutKind::kBalanced, params, {2});
  // w on rank 0 (256), v on rank 1 (64); b lies in 128 elements, which rank 1 takes all.
  const ElementSizes bf16;
  EXPECT_EQ(rank_bytes(layout, 0, bf16).optimizer(), 256 * 8);
  EXPECT_EQ(rank_bytes(layout, 1, bf16).optimizer(), 64 * 8 + 100 * 12);
  EXPECT_EQ(rank_bytes(layout, 1, bf16).parameters, (256 + 64 + 128) * 2);
  EXPECT_EQ(bytes_sent(layout, 0, bf16), (64 + 128) * 4 + 256 * 2);
  EXPECT_EQ(bytes_sent(layout, 1, bf16), 256 * 4 + (64 + 128) * 2);
  const ParamLayout alone = compute_layout(LayoutKind::kBalanced, params, {1});
  EXPECT_EQ(bytes_sent(alone, 0, bf16), 0);
}

}  // namespace
}  // namespace muoncore::parallel
