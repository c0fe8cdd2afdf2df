// Whole runs of a few steps: SFT, then GRPO from its model.
#include "muoncore/train/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "muoncore/core/log.h"
#include "muoncore/data/tokenizer.h"
#include "muoncore/models/hf.h"
#include "muoncore/train/gates.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/train_fixture.h"

namespace muoncore::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kWarning); }
  void TearDown() override { set_log_level(LogLevel::kInfo); }

  static std::string read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  // Lines of metrics.jsonl without what a clock, the process or torch's bookkeeping decides.
  static std::vector<nlohmann::json> metrics(const fs::path& run) {
    std::vector<nlohmann::json> lines;
    std::ifstream in(run / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      nlohmann::json object = nlohmann::json::parse(line);
      for (auto it = object["data"].begin(); it != object["data"].end();) {
        const bool varies = it.key().starts_with("timing_s/") || it.key().starts_with("perf/") ||
                            it.key().starts_with("actor/perf/");
        it = varies ? object["data"].erase(it) : std::next(it);
      }
      lines.push_back(object);
    }
    return lines;
  }

  fs::path sft(const std::string& name, std::vector<std::string> more = {}) {
    const fs::path run = scratch_.path() / name;
    std::vector<std::string> overrides = {"trainer.default_local_dir=" + run.string(),
                                          "trainer.total_training_steps=6",
                                          "trainer.threads=1",
                                          "trainer.device=cpu",
                                          "model.config.hidden_size=32",
                                          "model.config.intermediate_size=48",
                                          "model.config.num_hidden_layers=2",
                                          "model.config.num_attention_heads=2",
                                          "model.config.num_key_value_heads=1",
                                          "model.config.initializer_range=0.1",
                                          "data.task=addition",
                                          "data.eval_size=16",
                                          "data.train_batch_size=16",
                                          "data.micro_batch_size_per_gpu=8",
                                          "data.max_response_length=6",
                                          "trainer.logger=[file, tensorboard]"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    run_training(load_config(ConfigKind::kSft, "", overrides));
    return run;
  }

  fs::path grpo(const std::string& name, const fs::path& model,
                std::vector<std::string> more = {}) {
    const fs::path run = scratch_.path() / name;
    std::vector<std::string> overrides = {"trainer.default_local_dir=" + run.string(),
                                          "trainer.total_training_steps=3",
                                          "trainer.threads=1",
                                          "trainer.device=cpu",
                                          "actor_rollout_ref.model.path=" + model.string(),
                                          "actor_rollout_ref.actor.ppo_mini_batch_size=4",
                                          "actor_rollout_ref.actor.calculate_entropy=true",
                                          "actor_rollout_ref.actor.use_kl_loss=true",
                                          "actor_rollout_ref.actor.optim.lr=1e-3",
                                          "actor_rollout_ref.actor.optim.optimizer=muon",
                                          "actor_rollout_ref.rollout.n=4",
                                          "data.task=addition",
                                          "data.eval_size=16",
                                          "data.train_batch_size=4",
                                          "data.max_response_length=6",
                                          "trainer.logger=[file]"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    run_training(load_config(ConfigKind::kGrpo, "", overrides));
    return run;
  }

  static fs::path model_of(const fs::path& run, int64_t step) {
    return run / ("global_step_" + std::to_string(step)) / "actor" / "huggingface";
  }

  ScratchFolder scratch_;
};

TEST_F(RunTest, SameSeedSameMetricsAndWeights) {
  const fs::path a = sft("a");
  const fs::path b = sft("b");
  EXPECT_EQ(metrics(a), metrics(b));
  ASSERT_EQ(metrics(a).size(), 6u);
  const std::string weights = read(model_of(a, 6) / "model.safetensors");
  EXPECT_FALSE(weights.empty());
  EXPECT_EQ(weights, read(model_of(b, 6) / "model.safetensors"));

  const fs::path c = grpo("c", model_of(a, 6));
  const fs::path d = grpo("d", model_of(a, 6));
  const fs::path e = grpo("e", model_of(a, 6), {"trainer.seed=2"});
  EXPECT_EQ(metrics(c), metrics(d));
  EXPECT_NE(metrics(c), metrics(e));
  EXPECT_EQ(read(model_of(c, 3) / "model.safetensors"), read(model_of(d, 3) / "model.safetensors"));
  EXPECT_NE(read(model_of(c, 3) / "model.safetensors"), weights);
}

TEST_F(RunTest, AGrpoRunHasVerlsMetricsAndFiles) {
  const fs::path run = grpo("run", model_of(sft("start"), 6), {"trainer.test_freq=2"});
  const auto all = metrics(run);
  ASSERT_EQ(all.size(), 4u);  // the validation before the first step is step 0
  EXPECT_EQ(all[0]["step"], 0);
  EXPECT_TRUE(all[0]["data"].contains("val-core/addition/acc/mean@1"));
  std::set<std::string> names;
  std::ifstream in(run / "metrics.jsonl");
  std::string line;
  std::getline(in, line);
  std::getline(in, line);
  const auto first = nlohmann::json::parse(line);
  for (const auto& [name, value] : first["data"].items()) {
    EXPECT_TRUE(value.is_number()) << name;
    names.insert(name);
  }
  EXPECT_THAT(names,
              IsSupersetOf({"actor/loss", "actor/pg_loss", "actor/pg_clipfrac",
                            "actor/pg_clipfrac_lower", "actor/ppo_kl", "actor/entropy",
                            "actor/kl_loss", "actor/kl_coef", "actor/grad_norm", "actor/lr",
                            "actor/optim/update_rms/muon", "actor/optim/update_rms/adam",
                            "actor/optim/ns_calls", "actor/optim/step_skipped",
                            "actor/optim/state_bytes", "actor/perf/max_memory_allocated_gb"}));
  EXPECT_THAT(names, IsSupersetOf({"critic/score/mean",
                                   "critic/rewards/max",
                                   "critic/advantages/min",
                                   "response_length/mean",
                                   "response_length/clip_ratio",
                                   "prompt_length/mean",
                                   "timing_s/step",
                                   "timing_s/gen",
                                   "timing_s/reward",
                                   "timing_s/ref",
                                   "timing_s/adv",
                                   "timing_s/update_actor",
                                   "timing_s/optimizer_step",
                                   "perf/throughput",
                                   "perf/total_num_tokens",
                                   "perf/time_per_step",
                                   "perf/memory/peak_bytes/update_actor",
                                   "training/global_step",
                                   "training/epoch",
                                   "training/rollout_probs_diff_max"}));
  for (const char* file :
       {"config.yaml", "resolved.json", "metrics.jsonl", "latest_checkpointed_iteration.txt"}) {
    EXPECT_TRUE(fs::exists(run / file)) << file;
  }
  EXPECT_EQ(read(run / "latest_checkpointed_iteration.txt"), "3");
  const auto resolved = nlohmann::json::parse(read(run / "resolved.json"));
  EXPECT_EQ(resolved["threads"], 1);
  EXPECT_EQ(resolved["routing"].size(), 25u);
  EXPECT_EQ(resolved["memory_bytes"]["optimizer_state"], all[1]["data"]["actor/optim/state_bytes"]);
  // The sampler and the trainer compute with the same weights.
  EXPECT_LT(all[1]["data"]["training/rollout_probs_diff_max"], 1e-4);

  const auto loaded = models::load_hf(model_of(run, 3));
  const auto tokenizer = data::load_tokenizer(model_of(run, 3));
  EXPECT_EQ(tokenizer->vocab_size(), loaded.config.vocab_size);
}

TEST_F(RunTest, OldLogProbsKlInRewardAndManyMiniBatches) {
  const fs::path run = grpo(
      "run", model_of(sft("start"), 6),
      {"actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.actor.ppo_epochs=2",
       "algorithm.use_kl_in_reward=true", "actor_rollout_ref.actor.use_kl_loss=false",
       "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=3", "algorithm.kl_ctrl.kl_coef=0.1",
       "actor_rollout_ref.actor.entropy_coeff=0.01"});  // moves the policy without any reward
  const auto data = metrics(run)[2]["data"];            // step 2: the policy has moved
  EXPECT_TRUE(data.contains("actor/reward_kl_penalty"));
  EXPECT_EQ(data["actor/reward_kl_penalty_coeff"], 0.1);
  EXPECT_NE(data["critic/score/mean"], data["critic/rewards/mean"]);
}

TEST_F(RunTest, KeepsTheNewestModels) {
  const fs::path run =
      sft("run", {"trainer.save_freq=2", "trainer.max_ckpt_to_keep=2", "trainer.test_freq=3"});
  EXPECT_FALSE(fs::exists(run / "global_step_2"));
  EXPECT_TRUE(fs::exists(run / "global_step_4"));
  EXPECT_TRUE(fs::exists(run / "global_step_6"));
  for (const auto& entry : fs::directory_iterator(run)) {
    EXPECT_THAT(entry.path().filename().string(), ::testing::Not(HasSubstr("tmp")));
  }
}

TEST_F(RunTest, AFolderInTheWayAndAGate) {
  const fs::path start = sft("start");
  EXPECT_THROW(sft("start"), Error);
  try {
    grpo("gated", model_of(start, 6), {"trainer.gates.min_entropy=100"});
    FAIL() << "the gate did not stop the run";
  } catch (const GateStop& stop) {
    EXPECT_THAT(stop.what(), HasSubstr("step 1 by the gate trainer.gates.min_entropy"));
  }
  EXPECT_EQ(metrics(scratch_.path() / "gated").size(), 2u);  // step 0 and the step that stopped it
  try {
    grpo("lost", scratch_.path() / "none");
    FAIL() << "a model that is not there was loaded";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("none"));
  }
}

}  // namespace
}  // namespace muoncore::train
