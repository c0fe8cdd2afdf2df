// Scale modes, blocks, batches and the stages of the update rule.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muoncore/core/check.h"
#include "muoncore/muon/batch.h"
#include "muoncore/muon/matrix_blocks.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/muon/update_rule.h"
#include "tests/muon/golden.h"
#include "tests/muon/inputs.h"

namespace muoncore::muon {
namespace {

using testing::gaussian;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ScaleMode, EqualsTheGoldens) {
  const auto& rows = testing::golden_manifest().at("scale_factors");
  ASSERT_EQ(rows.size(), 9u);
  for (const auto& row : rows)
    for (const auto& [mode, value] : row.items()) {
      if (mode == "out" || mode == "inp") continue;
      const std::string name = mode.starts_with("torch_") ? mode.substr(6) : mode;
      EXPECT_NEAR(scale_factor(parse_scale_mode(name), row.at("out"), row.at("inp")),
                  value.get<double>(), 1e-12)
          << mode;
    }
  EXPECT_THAT([] { parse_scale_mode("spectrl"); },
              ThrowsMessage<Error>(HasSubstr("did you mean spectral?")));
}

TEST(ScaleMode, AdamwMatch) {
  EXPECT_NEAR(adamw_rms_match_scale_factor(0.9), 0.22941573387056177, 1e-15);
  EXPECT_NEAR(adamw_rms_match_scale_factor(0.95), 0.16012815380508713, 1e-15);
  EXPECT_EQ(adamw_rms_match_scale_factor(0), 1.0);
  EXPECT_THAT([] { adamw_rms_match_scale_factor(1.0); }, ThrowsMessage<Error>(HasSubstr("[0, 1)")));
  EXPECT_THAT([] { adamw_rms_match_scale_factor(-0.1); },
              ThrowsMessage<Error>(HasSubstr("[0, 1)")));
}

// AdamW's bias-corrected first moment of t unit-variance gradients: sum of squared weights, term by
// term.
TEST(ScaleMode, AdamwMatchAtAStep) {
  for (int64_t t : {1, 2, 5, 40}) {
    double squares = 0, sum = 0;
    for (int64_t k = 0; k < t; ++k) {
      const double weight = 0.1 * std::pow(0.9, static_cast<double>(k));
      squares += weight * weight;
      sum += weight;
    }
    EXPECT_NEAR(adamw_rms_match_scale_factor_at(0.9, t), std::sqrt(squares) / sum, 1e-12) << t;
  }
  EXPECT_NEAR(adamw_rms_match_scale_factor_at(0.9, 1000), adamw_rms_match_scale_factor(0.9), 1e-12);
}

TEST(MatrixBlocks, SplitsByGroupAndMergesBack) {
  const RowBlocks qkv{{4, 2, 2}, false};
  at::Tensor x = at::arange(16 * 3).reshape({16, 3}).to(at::kFloat);
  auto parts = split_blocks(x, qkv);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].sizes(), at::IntArrayRef({8, 3}));
  EXPECT_EQ(parts[1].sizes(), at::IntArrayRef({4, 3}));
  EXPECT_EQ(parts[0][4][0].item<float>(), 24);  // row 8: the first query row of the second group
  EXPECT_EQ(parts[1][0][0].item<float>(), 12);  // row 4
  EXPECT_EQ(parts[2][2][1].item<float>(), 43);  // row 14
  EXPECT_TRUE(merge_blocks(parts, qkv, x.sizes()).equal(x));
  EXPECT_EQ(count_matrices(x.sizes(), qkv), 3);
}

TEST(MatrixBlocks, PerGroupAndBatches) {
  const RowBlocks heads{{4}, true}, gate_up{{5, 5}, false};
  at::Tensor x = gaussian({12, 3}), experts = gaussian({2, 10, 3});
  auto parts = split_blocks(x, heads);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].sizes(), at::IntArrayRef({3, 4, 3}));
  EXPECT_TRUE(parts[0].select(0, 2).equal(x.slice(0, 8, 12)));
  EXPECT_TRUE(merge_blocks(parts, heads, x.sizes()).equal(x));
  EXPECT_EQ(count_matrices(x.sizes(), heads), 3);
  parts = split_blocks(experts, gate_up);
  EXPECT_EQ(parts[1].sizes(), at::IntArrayRef({2, 5, 3}));
  EXPECT_TRUE(parts[1].select(0, 1).equal(experts.select(0, 1).slice(0, 5, 10)));
  EXPECT_TRUE(merge_blocks(parts, gate_up, experts.sizes()).equal(experts));
  EXPECT_EQ(count_matrices(experts.sizes(), gate_up), 4);
  EXPECT_EQ(count_matrices(experts.sizes(), {}), 2);
  auto of_experts = split_blocks(experts, {{5}, true});
  EXPECT_EQ(of_experts[0].sizes(), at::IntArrayRef({4, 5, 3}));
  EXPECT_TRUE(merge_blocks(of_experts, {{5}, true}, experts.sizes()).equal(experts));
}

TEST(MatrixBlocks, ImpossibleSplitsAreRefused) {
  EXPECT_THAT(
      [] {
        check_blocks({{4, 2, 2}, false}, 10, "w");
      },
      ThrowsMessage<Error>(HasSubstr("w: 10 rows are not a multiple")));
  EXPECT_THAT(
      [] {
        check_blocks({{4, 0}, false}, 8, "w");
      },
      ThrowsMessage<Error>(HasSubstr("block of 0 rows")));
  EXPECT_THAT(
      [] {
        check_blocks({{}, true}, 8, "w");
      },
      ThrowsMessage<Error>(HasSubstr("split per group")));
  EXPECT_NO_THROW(check_blocks({}, 7, "w"));
}

TEST(Batch, EveryResultIsThatOfItsMatrixAlone) {
  for (auto precision : {MatmulPrecision::kHighest, MatmulPrecision::kMedium}) {
    NewtonSchulzOptions o;
    o.precision = precision;
    std::vector<at::Tensor> inputs{gaussian({16, 24}, 1),         gaussian({24, 16}, 2),
                                   gaussian({16, 24}, 3) * 1e-20, gaussian({8, 8}, 4),
                                   gaussian({2, 6, 4}, 5),        gaussian({16, 24}, 6)};
    auto results = orthogonalize_all(inputs, o);
    ASSERT_EQ(results.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const double tolerance = precision == MatmulPrecision::kMedium ? 1e-2 : 1e-6;
      EXPECT_LE(testing::relative_error(results[i], newton_schulz(inputs[i], o)), tolerance) << i;
    }
  }
  EXPECT_TRUE(orthogonalize_all({}, {}).empty());
}

TEST(UpdateRule, WeightDecayMethods) {
  const double lr = 0.5, wd = 0.2;
  for (const auto& [name, factor] :
       std::vector<std::pair<std::string, double>>{{"none", 1.0},
                                                   {"decoupled", 0.9},
                                                   {"independent", 0.8},
                                                   {"palm", 0.95},
                                                   {"l2", 1.0},
                                                   {"cautious", 1.0}}) {
    at::Tensor p = at::full({2, 2}, 3.0f);
    apply_weight_decay_(p, parse_weight_decay_method(name), wd, lr);
    EXPECT_NEAR(p[0][0].item<double>(), 3.0 * factor, 1e-6) << name;
  }
  EXPECT_THAT([] { parse_weight_decay_method("decopled"); },
              ThrowsMessage<Error>(HasSubstr("did you mean decoupled?")));
}

TEST(UpdateRule, CautiousDecayActsWhereItAgreesWithTheUpdate) {
  at::Tensor p = at::arange(-2, 4).to(at::kFloat).reshape({2, 3});  // -2 -1 0 / 1 2 3
  at::Tensor update = at::full({2, 3}, -1.0f);
  update[1][2] = 0.0f;
  apply_cautious_decay_(p, update, 0.2, 0.5);
  const std::vector<double> expected{-1.8, -0.9, 0, 1, 2, 2.7};
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_NEAR(p.flatten()[i].item<double>(), expected[i], 1e-6) << i;
}

TEST(UpdateRule, GradientIsScaledNotWritten) {
  at::Tensor g = gaussian({3, 4}, 1), before = g.clone(), p = gaussian({3, 4}, 2);
  at::Tensor same = effective_gradient(g, 1.0, p, WeightDecayMethod::kDecoupled, 0.1, at::kFloat);
  EXPECT_TRUE(same.is_same(g));
  at::Tensor scaled = effective_gradient(g, 0.25, p, WeightDecayMethod::kL2, 0.1, at::kFloat);
  EXPECT_LE((scaled - (before * 0.25 + p * 0.1)).abs().max().item<double>(), 1e-6);
  EXPECT_TRUE(g.equal(before));
}

TEST(UpdateRule, MomentumIsAnAverageAndExactAtItsEnds) {
  at::Tensor m = gaussian({3, 4}, 1), g = gaussian({3, 4}, 2), before = m.clone();
  update_momentum_(m, g, 0.95);
  EXPECT_LE((m - (before * 0.95 + g * 0.05)).abs().max().item<double>(), 1e-6);
  at::Tensor nesterov = momentum_direction(m, g, 0.95, true);
  EXPECT_LE((nesterov - (g * 0.05 + m * 0.95)).abs().max().item<double>(), 1e-6);
  EXPECT_TRUE(momentum_direction(m, g, 0.95, false).is_same(m));
  update_momentum_(m, g, 0.0);
  EXPECT_TRUE(m.equal(g));
}

}  // namespace
}  // namespace muoncore::muon
