#include "muoncore/optim/rms_match.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muoncore/core/check.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/optim/adamw.h"
#include "muoncore/optim/muon.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(RmsMatch, RowsAreSpreadOverTheMatrix) {
  EXPECT_THAT(sampled_rows(1), ElementsAre(0));
  EXPECT_THAT(sampled_rows(3), ElementsAre(0, 1, 2));
  EXPECT_THAT(sampled_rows(8), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(sampled_rows(80), ElementsAre(5, 15, 25, 35, 45, 55, 65, 75));
  EXPECT_TRUE(sampled_rows(0).empty());
}

// All rows are sampled, so the shadow is the whole of an AdamW; with two matrices, the pool of
// both.
TEST(RmsMatch, MeasuredIsTheUpdateRmsOfAnAdamwOverAllMatrices) {
  const at::Tensor a = leaf({8, 6}, "a", 1.0, at::kDouble),
                   b = leaf({2, 5, 4}, "b", 1.0, at::kDouble);
  const at::Tensor a_twin = a.detach().clone().requires_grad_(),
                   b_twin = b.detach().clone().requires_grad_();
  MuonOptions o(0.01);
  o.fp32_matmul_prec("highest").adamw_match("measured").match_betas({0.8, 0.9}).match_eps(1e-3);
  Muon muon(std::vector<at::Tensor>{a, b}, o);
  AdamW adam({a_twin, b_twin}, AdamWOptions(0.01).betas({0.8, 0.9}).eps(1e-3));
  for (int t = 0; t < 6; ++t) {
    a.mutable_grad() = random_tensor({8, 6}, fmt::format("a{}", t), 0.1, at::kDouble);
    b.mutable_grad() = random_tensor({2, 5, 4}, fmt::format("b{}", t), 1e-3, at::kDouble);
    a_twin.mutable_grad() = a.grad() * 0.5;
    b_twin.mutable_grad() = b.grad() * 0.5;
    muon.step_with({.grad_scale = 0.5});
    adam.step();
    const GroupStats& stats = muon.last_stats()[0];
    const double factor = stats.factor_sum / static_cast<double>(stats.elements);
    EXPECT_NEAR(factor, adam.last_stats()[0].update_rms(), 1e-12) << t;
    EXPECT_GT(factor, 0.01);
  }
}

// On noise the sample of 8 rows of 64 says what all of AdamW does, and bias_corrected its mean.
TEST(RmsMatch, SampleAndFormulaAgreeWithAdamwOnNoise) {
  const at::Tensor p = leaf({64, 96}, "p"), twin = leaf({64, 96}, "p");
  Muon muon(std::vector<at::Tensor>{p}, MuonOptions(0.01).adamw_match("measured"));
  AdamW adam({twin}, AdamWOptions(0.01));
  for (int t = 1; t <= 30; ++t) {
    p.mutable_grad() = random_tensor({64, 96}, fmt::format("g{}", t));
    twin.mutable_grad() = p.grad();
    muon.step();
    adam.step();
    const double factor = muon.last_stats()[0].factor_sum / (64.0 * 96.0);
    const double real = adam.last_stats()[0].update_rms();
    EXPECT_NEAR(factor, real, 0.06 * real) << t;
    // few second moments spread more: their ratio is wider than the noise limit
    if (t > 10) {
      EXPECT_NEAR(muon::adamw_rms_match_scale_factor_at(0.9, t), real, 0.12 * real) << t;
    }
  }
}

TEST(RmsMatch, BiasCorrectedFollowsEachParametersOwnSteps) {
  const at::Tensor early = leaf({4, 6}, "a"), late = leaf({4, 6}, "b");
  Muon muon(std::vector<at::Tensor>{early, late},
            MuonOptions(0.01).adamw_match("bias_corrected").match_betas({0.9, 0.95}));
  for (int64_t t = 1; t <= 12; ++t) {
    early.mutable_grad() = random_tensor({4, 6}, fmt::format("g{}", t));
    if (t > 3) late.mutable_grad() = early.grad();
    muon.step();
    const GroupStats& stats = muon.last_stats()[0];
    double expected = 24 * muon::adamw_rms_match_scale_factor_at(0.9, t);
    if (t > 3) expected += 24 * muon::adamw_rms_match_scale_factor_at(0.9, t - 3);
    EXPECT_NEAR(stats.factor_sum, expected, 1e-9) << t;
  }
  EXPECT_EQ(muon.param_state(late).at("step").item<double>(), 9.0);
}

// Ranks that own a part each, whose sums are added up, take the steps of one that owns all.
TEST(RmsMatch, OwnershipDoesNotChangeTheFactor) {
  const std::vector<std::vector<int64_t>> shapes{{16, 8}, {8, 24}, {3, 8, 8}};
  std::vector<at::Tensor> together, apart;
  for (size_t i = 0; i < shapes.size(); ++i) {
    together.push_back(leaf(shapes[i], fmt::format("p{}", i)));
    apart.push_back(leaf(shapes[i], fmt::format("p{}", i)));
  }
  MuonOptions o(0.01);
  o.adamw_match("measured");
  Muon whole(together, o), first({apart[0]}, o), second({apart[1], apart[2]}, o);
  Muon idle(std::vector<torch::optim::OptimizerParamGroup>{}, o);
  EXPECT_TRUE(idle.observes());
  EXPECT_FALSE(Muon({leaf({2, 2}, "x")}, MuonOptions()).observes());
  for (int t = 0; t < 3; ++t) {
    for (size_t i = 0; i < shapes.size(); ++i)
      together[i].mutable_grad() = apart[i].mutable_grad() =
          random_tensor(shapes[i], fmt::format("g{}.{}", i, t));
    whole.step_with({.grad_scale = 0.5});
    SquareSum total;
    for (Muon* rank : {&first, &idle, &second}) {
      const SquareSum part = rank->observe({.grad_scale = 0.5});
      total.sum += part.sum;
      total.count += part.count;
    }
    EXPECT_EQ(total.count, 8 * 8 + 8 * 24 + 3 * 8 * 8);
    for (Muon* rank : {&first, &idle, &second})
      rank->step_with({.grad_scale = 0.5, .observed = total});
    for (size_t i = 0; i < shapes.size(); ++i)
      EXPECT_LT(max_difference(together[i], apart[i]), 1e-7) << i;
  }
}

TEST(RmsMatch, Edges) {
  EXPECT_EQ(SquareSum{}.rms(), 0.0);
  for (double size : {0.0, 1e-25, 1e25}) {
    const at::Tensor p = leaf({4, 6}, "p");
    Muon muon(std::vector<at::Tensor>{p}, MuonOptions(0.01).adamw_match("measured"));
    for (int t = 0; t < 3; ++t) {
      p.mutable_grad() = (random_tensor({4, 6}, "g") * size).to(at::kFloat);
      muon.step();
      const double factor = muon.last_stats()[0].factor_sum / 24;
      EXPECT_NEAR(factor, size > 1 ? 1.0 : 0.0, 1e-6) << size;  // AdamW's eps swallows the tiny
      EXPECT_TRUE(p.isfinite().all().item<bool>());
    }
  }
  EXPECT_THAT([] { parse_adamw_match("measurd"); },
              ThrowsMessage<Error>(HasSubstr("did you mean measured?")));
  EXPECT_THAT(
      [] {
        check_options(MuonOptions().match_betas({1.0, 0.9}));
      },
      ThrowsMessage<Error>(HasSubstr("match_betas")));
  EXPECT_THAT([] { check_options(MuonOptions().match_eps(0.0)); },
              ThrowsMessage<Error>(HasSubstr("match_eps")));
}

}  // namespace
}  // namespace muoncore::optim
