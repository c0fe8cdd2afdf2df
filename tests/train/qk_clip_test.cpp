#include "muoncore/train/qk_clip.h"

#include <gtest/gtest.h>

#include <cmath>

#include "muoncore/comm/threads.h"
#include "muoncore/train/sft_step.h"
#include "tests/train/train_fixture.h"

namespace muoncore::train {
namespace {

models::ModelConfig one_layer(bool bias) {
  models::ModelConfig config = tiny_config();
  config.model_type = bias ? "qwen2" : "llama";
  config.qk_norm = false;
  config.qkv_bias = bias;
  config.num_hidden_layers = 1;  // its input does not depend on what is clipped
  config.initializer_range = 0.6;
  return config;
}

// Rows of 4 to 11 tokens, all of them targets but the first two.
data::Batch batch() {
  data::Batch out;
  out.ids = torch::zeros({6, 11}, torch::kInt64);
  out.loss_mask = torch::zeros({6, 11});
  out.lengths = torch::zeros({6}, torch::kInt64);
  const CounterRng rng({3, hash_name("qk-clip")});
  for (int64_t row = 0; row < 6; ++row) {
    const int64_t length = 4 + (5 * row) % 8;
    out.lengths[row] = length;
    for (int64_t t = 0; t < length; ++t) {
      out.ids[row][t] = static_cast<int64_t>(3 + rng.below(row * 64 + t, 29));
      out.loss_mask[row][t] = t >= 2 ? 1 : 0;
    }
    out.target_tokens += length - 2;
  }
  return out;
}

at::Tensor largest_logits(models::CausalLM& model, const data::Batch& batch) {
  const torch::NoGradGuard no_grad;
  models::LogitWatch watch(model);
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < 6; ++row) lengths.push_back(batch.lengths[row].item<int64_t>() - 1);
  watch.set_lengths(lengths);
  model.forward_hidden(batch.ids);
  return watch.largest().to(torch::kDouble);
}

// With a learning rate of zero the weights of the forward are those that are clipped.
TEST(QkClipStep, EveryHeadEndsAtTauHoweverTheBatchIsCut) {
  for (bool bias : {false, true})
    for (std::optional<int64_t> micro_rows :
         {std::optional<int64_t>{}, std::optional<int64_t>{2}}) {
      Arm arm("muon", one_layer(bias));
      for (auto& group : arm.optimizer->param_groups()) group.set_lr(0.0);
      const data::Batch data = batch();
      const at::Tensor before = largest_logits(*arm.model, data);
      const double tau = 0.7 * before.min().item<double>();
      ASSERT_GT(tau, 0.0);
      Trainee trainee = arm.trainee();
      trainee.qk_clip_tau = tau;
      const Metrics metrics = sft_update(trainee, data, micro_rows, arm.recorder);
      EXPECT_NEAR(metrics.at("train/optim/max_attention_logit"), before.max().item<double>(), 1e-4);
      EXPECT_EQ(metrics.at("train/optim/qk_clipped_heads"), 2.0);
      const at::Tensor after = largest_logits(*arm.model, data);
      for (int64_t head = 0; head < 2; ++head)
        EXPECT_NEAR(after[0][head].item<double>(), tau, 4e-6 * tau) << bias << head;
    }
}

TEST(QkClipStep, BelowTauAndOffChangeNoBit) {
  const data::Batch data = batch();
  Arm plain("muon", one_layer(true)), generous("muon", one_layer(true));
  Trainee a = plain.trainee(), b = generous.trainee();
  b.qk_clip_tau = 1e6;
  for (int step = 0; step < 3; ++step) {
    const Metrics off = sft_update(a, data, {}, plain.recorder);
    const Metrics on = sft_update(b, data, {}, generous.recorder);
    EXPECT_FALSE(off.contains("train/optim/max_attention_logit"));
    EXPECT_EQ(on.at("train/optim/qk_clipped_heads"), 0.0);
  }
  EXPECT_TRUE(same_bytes(plain.weights(), generous.weights()));
}

// Were the masters left as they are, the next step would write the clip over.
TEST(QkClipStep, HoldsInTheMastersOfBf16Weights) {
  const data::Batch data = batch();
  auto model = std::make_shared<models::CausalLM>(one_layer(true), torch::kBFloat16);
  model->init_weights(7);
  optim::OptimizerConfig config;
  config.optimizer = "muon";
  config.lr = 1e-30;
  config.weight_decay = 0.0;
  config.total_training_steps = 10;
  auto optimizer = optim::build_optimizer(optimizer_params(*model), config);
  optim::OptimizerParamScheduler scheduler(*optimizer, optim::scheduler_options(config));
  PhaseRecorder recorder{c10::Device(c10::DeviceType::CPU)};
  const double tau = 0.5 * largest_logits(*model, data).min().item<double>();
  const Ranks ranks;
  Trainee trainee{*model, *optimizer, scheduler, ranks, tau};
  sft_update(trainee, data, {}, recorder);
  const at::Tensor clipped = largest_logits(*model, data);
  EXPECT_LT(clipped.max().item<double>(), 1.02 * tau);
  EXPECT_GT(clipped.min().item<double>(), 0.98 * tau);
  const auto state = optimizer->state();
  for (const auto& [name, param] : model->named_params())
    EXPECT_TRUE(param.equal(
        state.at("optimizer.state.fp32_param." + name).to(torch::kBFloat16).view(param.sizes())))
        << name;
  trainee.qk_clip_tau.reset();
  sft_update(trainee, data, {}, recorder);
  EXPECT_LT(largest_logits(*model, data).max().item<double>(), 1.02 * tau);
}

// Each rank sees its own rows; all clip by the largest logit of the whole batch, on 7 ranks too,
// where one has no row.
TEST(QkClipStep, RanksClipByTheLargestOfAll) {
  const data::Batch data = batch();
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < 6; ++row) lengths.push_back(data.lengths[row].item<int64_t>());
  std::vector<at::Tensor> expected;
  for (const int64_t n : {1, 2, 7}) {
    std::vector<std::vector<at::Tensor>> weights(n);
    comm::run_ranks(n, [&](comm::Group& group, comm::GroupFactory& factory) {
      const Ranks ranks(group, factory);
      Arm arm("muon", one_layer(true));
      Trainee trainee{*arm.model, *arm.optimizer, *arm.scheduler, ranks, 0.5};
      QkClip clip(trainee);
      std::vector<int64_t> rows;
      for (int64_t row = ranks.share(6).begin; row < ranks.share(6).end; ++row) rows.push_back(row);
      if (!rows.empty()) {
        clip.expect_rows(lengths, rows);
        arm.model->forward_hidden(take_rows(data.ids, rows, 11));
      }
      Metrics metrics;
      clip.after_step({}, "", metrics);
      EXPECT_EQ(metrics.at("optim/qk_clipped_heads"), 2.0);
      weights[ranks.rank()] = arm.weights();
    });
    if (n == 1) expected = weights[0];
    for (const auto& own : weights) {
      EXPECT_TRUE(same_bytes(own, weights[0]));
      EXPECT_LT(largest_difference(own, expected), 1e-6);
    }
  }
  EXPECT_GT(largest_difference(expected, Arm("muon", one_layer(true)).weights()), 1e-2);
}

TEST(QkClipStep, AMiniBatchOfGrpoIsClippedAndASkippedStepIsNot) {
  Arm arm("muon", one_layer(false));
  Trainee trainee = arm.trainee();
  trainee.qk_clip_tau = 1e-3;
  RolloutBatch rollouts = random_batch({1.0, -1.0, 0.5, 0.25});
  UpdateSettings settings;
  settings.mini_batch_rows = 4;
  const Metrics metrics = update_actor(trainee, rollouts, settings, 1, arm.recorder);
  EXPECT_EQ(metrics.at("actor/optim/qk_clipped_heads"), 2.0);
  EXPECT_GT(metrics.at("actor/optim/max_attention_logit"), 1e-3);

  const auto before = arm.weights();
  QkClip clip(trainee);
  arm.model->forward_hidden(batch().ids);
  Metrics none;
  optim::StepResult skipped;
  skipped.skipped = true;
  clip.after_step(skipped, "actor/", none);
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(same_bytes(arm.weights(), before));
}

}  // namespace
}  // namespace muoncore::train
