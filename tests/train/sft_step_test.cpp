#include "muoncore/train/sft_step.h"

#include <gtest/gtest.h>

#include "tests/train/train_fixture.h"

namespace muoncore::train {
namespace {

TEST(SftStepTest, MicroBatchesDoNotChangeTheStep) {
  const data::Batch batch = data::sft_batch(ListData(), 0, 8, 0);
  Arm once("adam");
  Arm split("adam");
  Trainee a = once.trainee();
  Trainee b = split.trainee();
  const Metrics whole = sft_update(a, batch, {}, once.recorder);
  const Metrics parts = sft_update(b, batch, 2, split.recorder);
  EXPECT_NEAR(whole.at("train/loss"), parts.at("train/loss"), 1e-5);
  EXPECT_NEAR(whole.at("train/grad_norm"), parts.at("train/grad_norm"), 1e-5);
  std::vector<at::Tensor> first, second;
  for (const auto& [key, tensor] : once.optimizer->state()) {
    if (key.find(".exp_avg.") != std::string::npos) first.push_back(tensor);
  }
  for (const auto& [key, tensor] : split.optimizer->state()) {
    if (key.find(".exp_avg.") != std::string::npos) second.push_back(tensor);
  }
  EXPECT_LT(largest_difference(first, second), 1e-5);
}

// The loss by its definition, from the whole logits in fp64.
TEST(SftStepTest, TheLossIsTheMeanOverTargets) {
  Arm arm("adam");
  const data::Batch batch = data::sft_batch(ListData(), 0, 11, 0);
  double sum = 0.0;
  {
    const torch::NoGradGuard no_grad;
    const auto logits = arm.model->logits(arm.model->forward_hidden(batch.ids));
    const auto log_probs = logits.to(torch::kDouble).log_softmax(-1);
    for (int64_t b = 0; b < batch.ids.size(0); ++b) {
      for (int64_t t = 1; t < batch.ids.size(1); ++t) {
        if (!batch.loss_mask[b][t].item<bool>()) continue;
        sum -= log_probs[b][t - 1][batch.ids[b][t].item<int64_t>()].item<double>();
      }
    }
  }
  const double expected = sum / static_cast<double>(batch.target_tokens);
  EXPECT_NEAR(sft_loss(*arm.model, ListData(), 4, 0, 2, arm.ranks), expected, 1e-5);
  Trainee trainee = arm.trainee();
  EXPECT_NEAR(sft_update(trainee, batch, 3, arm.recorder).at("train/loss"), expected, 1e-5);
}

TEST(SftStepTest, TheLossFalls) {
  Arm arm("muon");
  Trainee trainee = arm.trainee();
  const data::Batch batch = data::sft_batch(ListData(), 0, 11, 0);
  const double before = sft_update(trainee, batch, {}, arm.recorder).at("train/loss");
  for (int i = 0; i < 20; ++i) sft_update(trainee, batch, {}, arm.recorder);
  EXPECT_LT(sft_update(trainee, batch, {}, arm.recorder).at("train/loss"), 0.7 * before);
}

}  // namespace
}  // namespace muoncore::train
