#include "muoncore/train/compare_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "muoncore/core/check.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace muoncore::train {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;

class Plan : public testing::Test {
 protected:
  ComparePlan plan(std::vector<std::string> overrides = {}) const {
    overrides.push_back("compare.output_dir=" + out_.string());
    ComparePlan planned = plan_comparison(load_config(ConfigKind::kCompare, file_, overrides));
    check_output(planned);
    return planned;
  }
  std::string error_of(const std::vector<std::string>& overrides) const {
    return muoncore::error_of([&] { plan(overrides); });
  }

  ScratchFolder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
  const std::filesystem::path out_ = folder_ / "out";
  const std::filesystem::path file_ =
      std::filesystem::path(MUONCORE_SOURCE_DIR) / "examples/addition/compare.yaml";
};

TEST_F(Plan, OfTheExample) {
  ComparePlan p = plan();
  EXPECT_EQ(p.kind, ConfigKind::kGrpo);
  EXPECT_THAT(p.seeds, ElementsAre(1, 2, 3));
  ASSERT_EQ(p.arms.size(), 2u);
  EXPECT_EQ(p.arms[0].name, "adamw");
  EXPECT_EQ(p.arms[1].name, "muon");
  EXPECT_EQ(p.jobs, 2);
  EXPECT_EQ(p.threads, 1);
  EXPECT_GE(p.timing_steps, 20);
  EXPECT_EQ(p.start->filename(), "sft.yaml");
}

TEST_F(Plan, StartsAreOnePerSeedInFoldersOfTheirOwn) {
  ComparePlan p = plan({"compare.start_overrides.trainer.total_training_steps=777"});
  std::vector<ChildCommand> commands = start_commands(p);
  ASSERT_EQ(commands.size(), 3u);
  EXPECT_EQ(commands[1].name, "start, seed 2");
  EXPECT_EQ(commands[1].arguments[0], "sft");
  EXPECT_THAT(
      commands[1].arguments,
      IsSupersetOf({std::string("trainer.seed=2"), std::string("trainer.total_training_steps=777"),
                    "trainer.default_local_dir=" + (out_ / "start/seed-2").string()}));
  EXPECT_EQ(commands[1].log, out_ / "start/seed-2.log");
  EXPECT_THAT(commands[1].environment,
              Contains(std::pair<std::string, std::string>("OMP_NUM_THREADS", "1")));
}

TEST_F(Plan, ArmsRunSeedBySeedFromTheStartOfTheirSeed) {
  ComparePlan p = plan({"compare.overrides.trainer.total_training_steps=9"});
  for (int seed : {1, 2, 3}) {
    std::filesystem::path run = start_folder(p, seed);
    std::filesystem::create_directories(run / "global_step_400/actor/huggingface");
    std::ofstream(run / "latest_checkpointed_iteration.txt") << 400;
  }
  std::vector<ChildCommand> commands = arm_commands(p);
  ASSERT_EQ(commands.size(), 6u);
  EXPECT_EQ(commands[0].name, "adamw, seed 1");
  EXPECT_EQ(commands[1].name, "muon, seed 1");
  EXPECT_EQ(commands[4].name, "adamw, seed 3");
  EXPECT_EQ(commands[5].arguments[0], "grpo");
  EXPECT_THAT(
      commands[5].arguments,
      IsSupersetOf({std::string("trainer.seed=3"), std::string("trainer.total_training_steps=9"),
                    std::string("actor_rollout_ref.actor.optim.optimizer=muon"),
                    "actor_rollout_ref.model.path=" +
                        (out_ / "start/seed-3/global_step_400/actor/huggingface").string(),
                    "trainer.default_local_dir=" + (out_ / "arms/muon/seed-3").string()}));
  // What a child gets is what load_config takes.
  std::vector<std::string> overrides(commands[5].arguments.begin() + 2,
                                     commands[5].arguments.end());
  Config config = load_config(ConfigKind::kGrpo, commands[5].arguments[1], overrides);
  EXPECT_EQ(config.integer("trainer.seed"), 3);
  EXPECT_EQ(config.text("trainer.default_local_dir"), (out_ / "arms/muon/seed-3").string());
}

TEST_F(Plan, AStartWithoutAModelIsAnError) {
  ComparePlan p = plan();
  EXPECT_THROW(arm_commands(p), Error);
  std::filesystem::create_directories(start_folder(p, 1));
  std::ofstream(start_folder(p, 1) / "latest_checkpointed_iteration.txt") << "4x";
  EXPECT_THROW(arm_overrides(p, p.arms[0], 1), Error);
}

TEST_F(Plan, WithoutAStart) {
  ComparePlan p = plan({"compare.start=null"});
  EXPECT_THAT(start_commands(p), IsEmpty());
  EXPECT_EQ(arm_commands(p).size(), 6u);
}

TEST_F(Plan, ThreadsAreTheCoresSharedAmongTheJobs) {
  ComparePlan p = plan({"compare.threads=null", "compare.jobs=1"});
  EXPECT_EQ(p.threads, p.cores);
  EXPECT_EQ(plan({"compare.threads=null", "compare.jobs=1000"}).threads, 1);
  EXPECT_EQ(plan({"compare.threads=null", "compare.jobs=1", "compare.nproc=1000"}).threads, 1);
}

TEST_F(Plan, AnOutputFolderInTheWayIsRefused) {
  std::filesystem::create_directories(out_);
  EXPECT_EQ(error_of({}), "no error");  // empty
  std::ofstream(out_ / "something") << "x";
  EXPECT_THAT(error_of({}), HasSubstr("compare.output_dir: " + out_.string() + " is not empty"));
}

TEST_F(Plan, OneArmAloneIsRefused) {
  EXPECT_THAT(error_of({"compare.arms={adamw: {}}"}), HasSubstr("needs at least two arms"));
}

TEST_F(Plan, RunsMustWriteTheirMetrics) {
  EXPECT_THAT(error_of({"compare.overrides.trainer.logger=[console]"}),
              HasSubstr("key 'trainer.logger'"));
}

}  // namespace
}  // namespace muoncore::train
