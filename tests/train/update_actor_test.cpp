#include "muoncore/train/update_actor.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "muoncore/train/rollout_phase.h"
#include "tests/train/train_fixture.h"

namespace muoncore::train {
namespace {

const std::vector<double> kAdvantages = {0.9, -0.4, 1.3, 0.0, -1.1, 0.2, 0.7, -0.6};

UpdateSettings whole_batch() {
  UpdateSettings settings;
  settings.mini_batch_rows = 8;
  settings.policy.clip_ratio_high = 0.28;
  settings.loss_scale_factor = 7;
  return settings;
}

// Every loss mode, with the KL and entropy terms on: one update in one pass, and in 4
// micro-batches.
TEST(UpdateActorTest, MicroBatchesDoNotChangeTheUpdate) {
  for (const auto& mode : rl::loss_agg_mode_names()) {
    UpdateSettings settings = whole_batch();
    settings.policy.loss_agg_mode = rl::parse_loss_agg_mode(mode);
    settings.entropy_coeff = 0.01;
    settings.use_kl_loss = true;
    Arm once("adam");
    Arm split("adam");
    RolloutBatch batch = random_batch(kAdvantages);
    batch.ref_log_probs = torch::full_like(batch.rollout.log_probs, -3.0);
    RolloutBatch again = batch;
    Trainee a = once.trainee();
    Trainee b = split.trainee();
    const Metrics whole = update_actor(a, batch, settings, 1, once.recorder);
    settings.micro_batch_rows = 2;
    const Metrics parts = update_actor(b, again, settings, 1, split.recorder);
    for (const char* name : {"actor/loss", "actor/pg_loss", "actor/kl_loss", "actor/entropy",
                             "actor/entropy_loss", "actor/grad_norm", "actor/ppo_kl"}) {
      EXPECT_NEAR(whole.at(name), parts.at(name), 1e-5 * std::max(1.0, std::abs(whole.at(name))))
          << mode << " " << name;
    }
    EXPECT_LT((batch.old_log_probs - again.old_log_probs).abs().max().item<double>(), 1e-5);
  }
}

// A Muon step (weights), where a wrong gradient scale per micro-batch could not hide.
TEST(UpdateActorTest, MicroBatchesGiveTheSameWeights) {
  Arm once("muon");
  Arm split("muon");
  const std::vector<at::Tensor> start = once.weights();
  UpdateSettings settings = whole_batch();
  RolloutBatch batch = random_batch(kAdvantages);
  RolloutBatch again = batch;
  for (Arm* arm : {&once, &split}) {
    arm->scheduler->step(10);  // past the warm-up
  }
  Trainee a = once.trainee();
  Trainee b = split.trainee();
  update_actor(a, batch, settings, 1, once.recorder);
  settings.micro_batch_rows = 2;
  update_actor(b, again, settings, 1, split.recorder);
  EXPECT_GT(largest_difference(start, once.weights()), 1e-3);
  // AdamW's first step divides each gradient by its own size, so a gradient of about 1e-8 (its
  // epsilon) moves by rounding alone: compare what Muon updates.
  const auto specs = once.model->param_specs();
  const auto wa = once.weights();
  const auto wb = split.weights();
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].role != ParamRole::kMatrix) continue;
    EXPECT_LT((wa[i] - wb[i]).abs().max().item<double>(), 1e-5) << specs[i].name;
  }
}

TEST(UpdateActorTest, MicroBatchesGiveTheSameGradients) {
  std::vector<std::vector<at::Tensor>> grads;
  for (const std::optional<int64_t> rows :
       {std::optional<int64_t>(), std::optional<int64_t>(2), std::optional<int64_t>(3)}) {
    Arm arm("adam");
    Trainee trainee = arm.trainee();
    UpdateSettings settings = whole_batch();
    settings.micro_batch_rows = rows;
    RolloutBatch batch = random_batch(kAdvantages);
    update_actor(trainee, batch, settings, 1, arm.recorder);
    grads.emplace_back();
    for (const auto& [key, tensor] : arm.optimizer->state()) {
      // After one step exp_avg = (1 - beta1) * clipped gradient.
      if (key.find(".exp_avg.") != std::string::npos) grads.back().push_back(tensor.clone());
    }
    ASSERT_FALSE(grads.back().empty());
  }
  EXPECT_LT(largest_difference(grads[0], grads[1]), 1e-5);
  EXPECT_LT(largest_difference(grads[0], grads[2]), 1e-5);
}

TEST(UpdateActorTest, ZeroAdvantagesSkipTheStepButNotTheSchedule) {
  for (const char* kind : {"muon", "adam"}) {
    Arm arm(kind);
    Trainee trainee = arm.trainee();
    UpdateSettings settings = whole_batch();
    RolloutBatch first = random_batch(kAdvantages);
    update_actor(trainee, first, settings, 1, arm.recorder);  // momentum is not zero now
    const auto weights = arm.weights();
    std::map<std::string, at::Tensor> state;
    for (const auto& [key, tensor] : arm.optimizer->state()) state[key] = tensor.clone();
    const double lr = arm.scheduler->lr();

    RolloutBatch constant = random_batch(std::vector<double>(8, 0.0));
    const Metrics metrics = update_actor(trainee, constant, settings, 2, arm.recorder);
    EXPECT_EQ(metrics.at("actor/optim/step_skipped"), 1.0);
    EXPECT_EQ(metrics.at("actor/grad_norm"), 0.0);
    EXPECT_TRUE(same_bytes(weights, arm.weights())) << kind;
    for (const auto& [key, tensor] : arm.optimizer->state()) {
      EXPECT_TRUE(tensor.equal(state.at(key))) << kind << " " << key;
    }
    EXPECT_EQ(arm.scheduler->num_steps(), 2);
    EXPECT_GT(arm.scheduler->lr(), lr);  // warming up

    settings.use_kl_loss = true;  // now there is a gradient
    constant.ref_log_probs = torch::full_like(constant.rollout.log_probs, -3.0);
    const Metrics moved = update_actor(trainee, constant, settings, 3, arm.recorder);
    EXPECT_EQ(moved.at("actor/optim/step_skipped"), 0.0);
    EXPECT_FALSE(same_bytes(weights, arm.weights())) << kind;
  }
}

TEST(UpdateActorTest, ANonFiniteGradientTouchesNothing) {
  Arm arm("muon");
  Trainee trainee = arm.trainee();
  const auto weights = arm.weights();
  std::vector<double> advantages = kAdvantages;
  advantages[2] = std::numeric_limits<double>::infinity();
  RolloutBatch batch = random_batch(advantages);
  const Metrics metrics = update_actor(trainee, batch, whole_batch(), 1, arm.recorder);
  EXPECT_EQ(metrics.at("actor/optim/step_skipped"), 1.0);
  EXPECT_EQ(metrics.at("actor/optim/nonfinite"), 1.0);
  EXPECT_TRUE(same_bytes(weights, arm.weights()));
}

// The first pass's log-probabilities are what a pass of their own gives, so detaching them is the
// same update.
TEST(UpdateActorTest, DetachedOldLogProbsAreThoseOfASecondPass) {
  Arm detached("adam");
  Arm second("adam");
  UpdateSettings settings = whole_batch();
  RolloutBatch a = random_batch(kAdvantages);
  RolloutBatch b = a;
  const LogProbPass pass =
      log_prob_pass(*second.model, b, 1.0, 3, /*with_entropy=*/true, second.ranks);
  b.old_log_probs = pass.log_probs;
  Trainee ta = detached.trainee();
  Trainee tb = second.trainee();
  settings.calculate_entropy = true;
  const Metrics ma = update_actor(ta, a, settings, 1, detached.recorder);
  const Metrics mb = update_actor(tb, b, settings, 1, second.recorder);
  EXPECT_LT((a.old_log_probs - b.old_log_probs).abs().max().item<double>(), 1e-5);
  EXPECT_NEAR(ma.at("actor/grad_norm"), mb.at("actor/grad_norm"), 1e-5);
  EXPECT_NEAR(ma.at("actor/entropy"), pass.mean_entropy, 1e-5);
  EXPECT_EQ(ma.at("actor/ppo_kl"), 0.0);
}

TEST(UpdateActorTest, EpochsAndMiniBatchesStepTheOptimizerOftenAndTheScheduleOnce) {
  Arm arm("adam");
  Trainee trainee = arm.trainee();
  UpdateSettings settings = whole_batch();
  settings.mini_batch_rows = 4;
  settings.ppo_epochs = 3;
  settings.shuffle = true;
  RolloutBatch batch = random_batch(kAdvantages);
  EXPECT_THROW(update_actor(trainee, batch, settings, 1, arm.recorder), std::logic_error);
  batch.old_log_probs = log_prob_pass(*arm.model, batch, 1.0, {}, false, arm.ranks).log_probs;
  update_actor(trainee, batch, settings, 1, arm.recorder);
  EXPECT_EQ(arm.scheduler->num_steps(), 1);
  for (const auto& [key, tensor] : arm.optimizer->state()) {
    if (key.find(".step.") != std::string::npos) {
      EXPECT_EQ(tensor.item<double>(), 6.0) << key;
    }
  }
}

// T1 of the references (rl.md 1.1): the state to the byte.
TEST(UpdateActorTest, StateBytesOfTheToyModel) {
  models::ModelConfig toy = tiny_config();
  toy.hidden_size = 128;
  toy.intermediate_size = 384;
  toy.num_hidden_layers = 4;
  toy.num_attention_heads = 4;
  toy.num_key_value_heads = 2;
  toy.head_dim = 32;
  for (const auto& [kind, bytes] :
       std::map<std::string, double>{{"muon", 3222528.0}, {"adam", 6368256.0}}) {
    Arm arm(kind, toy);
    EXPECT_EQ(arm.model->config().parameter_count(), 796032);
    Trainee trainee = arm.trainee();
    RolloutBatch batch = random_batch(kAdvantages);
    const Metrics metrics = update_actor(trainee, batch, whole_batch(), 1, arm.recorder);
    EXPECT_EQ(metrics.at("actor/optim/state_bytes"), bytes);
    EXPECT_EQ(metrics.at("actor/optim/ns_calls"), kind == "muon" ? 28.0 : 0.0);
  }
}

}  // namespace
}  // namespace muoncore::train
