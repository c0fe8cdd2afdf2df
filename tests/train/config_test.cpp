#include "muoncore/train/config.h"

#include <gmock/gmock.h>

#include "config_fixture.h"
#include "muoncore/train/config_tables.h"
#include "muoncore/train/config_text.h"

namespace muoncore::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kOptim = "actor_rollout_ref.actor.optim.";

class ConfigTest : public ConfigFiles {};

TEST_F(ConfigTest, DefaultsAreVerlsButWhereTheTableSaysSo) {
  Config config = load_config(ConfigKind::kGrpo, "", {});
  EXPECT_EQ(config.real(kOptim + "lr"), 1e-6);
  EXPECT_EQ(config.text(kOptim + "lr_decay_style"), "constant");
  EXPECT_THAT(config.reals(kOptim + "betas"), ElementsAre(0.9, 0.999));
  EXPECT_EQ(config.text(kOptim + "muon_tp_mode"), "duplicated");
  EXPECT_EQ(config.real(kOptim + "muon_momentum"), 0.95);
  EXPECT_EQ(config.text("algorithm.adv_estimator"), "grpo");
  EXPECT_THAT(config.texts("trainer.logger"), ElementsAre("console", "file", "tensorboard"));
  EXPECT_EQ(config.text("actor_rollout_ref.rollout.name"), "muoncore");
  EXPECT_EQ(config.text("trainer.device"), "auto");
  EXPECT_EQ(config.integer("data.train_batch_size"), 1024);
  EXPECT_EQ(config.integer("actor_rollout_ref.actor.ppo_mini_batch_size"), 256);
  EXPECT_TRUE(config.is_null("trainer.total_training_steps"));
  EXPECT_EQ(config.text("trainer.default_local_dir"), "checkpoints/muoncore/grpo");
  EXPECT_EQ(config.origin(kOptim + "lr"), "default");
  EXPECT_EQ(load_config(ConfigKind::kSft, "", {}).real("optim.lr"), 1e-3);
}

// Every default must itself be a value that the option allows.
TEST_F(ConfigTest, EveryDefaultIsAllowed) {
  for (ConfigKind kind : {ConfigKind::kGrpo, ConfigKind::kSft, ConfigKind::kCompare})
    for (const Option& option : option_table(kind).options())
      EXPECT_NO_THROW(check_option(option, option.path, option.fallback)) << option.path;
}

// A declared key is never refused by name too, and each has help or a reason.
TEST_F(ConfigTest, TablesAreConsistent) {
  for (ConfigKind kind : {ConfigKind::kGrpo, ConfigKind::kSft, ConfigKind::kCompare}) {
    const OptionTable& table = option_table(kind);
    for (const Refusal& refusal : table.refusals()) {
      EXPECT_EQ(table.find(refusal.path), nullptr) << refusal.path;
      EXPECT_FALSE(table.is_section(refusal.path)) << refusal.path;
      EXPECT_FALSE(refusal.reason.empty()) << refusal.path;
    }
    for (const Option& option : table.options()) {
      EXPECT_FALSE(option.help.empty() && option.why_only.empty()) << option.path;
      EXPECT_FALSE(option.added && option.verl_default) << option.path;
      if (option.verl_default) {
        EXPECT_FALSE(option.verl_default->same_value(option.fallback)) << option.path;
      }
    }
  }
}

TEST_F(ConfigTest, CommandLineWinsOverFileWinsOverDefault) {
  Config config = load(ConfigKind::kSft, "optim:\n  lr: 2e-3\n  clip_grad: 2\n",
                       {"optim.lr=5e-4", "optim.lr=3e-4"});
  EXPECT_EQ(config.real("optim.lr"), 3e-4);
  EXPECT_EQ(config.real("optim.clip_grad"), 2.0);
  EXPECT_EQ(config.real("optim.weight_decay"), 0.01);
  EXPECT_EQ(config.origin("optim.lr"), "command line");
  EXPECT_EQ(config.origin("optim.clip_grad"), (folder / "f.yaml").string() + ":3");
}

TEST_F(ConfigTest, GettersRefuseWhatIsNotDeclared) {
  Config config = load_config(ConfigKind::kSft, "", {});
  EXPECT_THAT(error_of([&] { config.real("optim.lrr"); }),
              HasSubstr("declares no key 'optim.lrr'"));
  EXPECT_THAT(error_of([&] { config.flag("optim.lr"); }),
              HasSubstr("declared as real, and asked for as flag"));
  EXPECT_THAT(error_of([&] { config.integer("trainer.total_training_steps"); }),
              HasSubstr("is null"));
  EXPECT_TRUE(config.declares("optim.lr"));
  EXPECT_FALSE(config.declares("algorithm.gamma"));
  EXPECT_EQ(config.real("trainer.seed"), 1.0);
}

TEST_F(ConfigTest, ClipRatioAloneSetsBothBounds) {
  const std::string actor = "actor_rollout_ref.actor.clip_ratio";
  Config alone = load_config(ConfigKind::kGrpo, "", {actor + "=0.3"});
  EXPECT_EQ(alone.real(actor + "_low"), 0.3);
  EXPECT_EQ(alone.real(actor + "_high"), 0.3);
  Config with_high = load_config(ConfigKind::kGrpo, "", {actor + "=0.3", actor + "_high=0.28"});
  EXPECT_EQ(with_high.real(actor + "_low"), 0.3);
  EXPECT_EQ(with_high.real(actor + "_high"), 0.28);
  Config high_only = load_config(ConfigKind::kGrpo, "", {actor + "_high=0.28"});
  EXPECT_EQ(high_only.real(actor + "_low"), 0.2);
}

TEST_F(ConfigTest, SynonymsAndValuesThatChangeNothing) {
  EXPECT_NO_THROW(load_config(ConfigKind::kSft, "", {"optim.optimizer=adamw"}));
  EXPECT_NO_THROW(load_config(ConfigKind::kSft, "", {"optim.muon_tp_mode=blockwise"}));   // verl's
  EXPECT_NO_THROW(load_config(ConfigKind::kSft, "", {"optim.muon_tp_mode=duplicated"}));  // ours
  for (const char* value : {"True", "False"})
    EXPECT_NO_THROW(load_config(
        ConfigKind::kSft, "", {std::string("optim.use_checkpoint_opt_param_scheduler=") + value}));
  Config config =
      load_config(ConfigKind::kSft, "",
                  {"optim.optimizer=muon", "optim.muon_match_adamw_update_rms=True",
                   "optim.muon_extra_scale_factor=1.0", "optim.muon_tp_mode=blockwise"});
  EXPECT_EQ(config.text("optim.muon_tp_mode"), "blockwise");
}

TEST_F(ConfigTest, ResolvedYamlIsAcceptedAgainUnchanged) {
  std::vector<std::string> overrides = {
      "actor_rollout_ref.actor.clip_ratio=0.3",
      kOptim + "optimizer=muon",
      kOptim + "lr=3e-4",
      kOptim + "muon_match_adamw_update_rms=True",
      kOptim + "override_optimizer_config={adam_beta2: 0.99}",
      kOptim + "routing_rules={'lm_head.*': adam}",
      kOptim + "muon_matrix_layouts={'.*': {heads: {head_dim: 4}}}",
      "trainer.experiment_name='a b: #1'",
      "trainer.total_training_steps=80",
      "data.train_batch_size=32",
      "actor_rollout_ref.actor.ppo_mini_batch_size=32",
      "trainer.gates.max_kl=0.5"};
  Config config = load_config(ConfigKind::kGrpo, "", overrides);
  std::string text = to_yaml(config);
  Config again = load(ConfigKind::kGrpo, text);
  EXPECT_EQ(to_yaml(again), text);
  ASSERT_EQ(again.values().size(), config.values().size());
  for (const auto& [path, value] : config.values())
    EXPECT_TRUE(value.same_value(again.node(path))) << path;
  EXPECT_EQ(detect_kind(write("c.yaml", text)), ConfigKind::kGrpo);
  std::string sft = to_yaml(load_config(
      ConfigKind::kSft, "", {"data.task=jsonl", "data.train_files=[x]", "model.path=m"}));
  EXPECT_EQ(to_yaml(load(ConfigKind::kSft, sft)), sft);
}

TEST_F(ConfigTest, ShowMarksDifferencesAndIsAcceptedAgain) {
  Config config =
      load(ConfigKind::kSft, "optim:\n  optimizer: muon\n  muon_match_adamw_update_rms: True\n");
  std::string text = show_config(config);
  EXPECT_THAT(text, HasSubstr("muon_tp_mode: duplicated"));
  EXPECT_THAT(text, HasSubstr("# verl's default: blockwise"));
  EXPECT_THAT(text, HasSubstr("f.yaml:2"));
  EXPECT_THAT(text, HasSubstr("a resumed run always restores the schedule"));
  EXPECT_THAT(text,
              HasSubstr("# muon's factor: 0.22941573387056174 (derived from betas[0] = 0.9)"));
  EXPECT_EQ(to_yaml(load(ConfigKind::kSft, text)), to_yaml(config));
}

TEST_F(ConfigTest, DetectsTheKindByItsKeys) {
  EXPECT_EQ(detect_kind(write("a.yaml", "actor_rollout_ref: {}")), ConfigKind::kGrpo);
  EXPECT_EQ(detect_kind(write("a.yaml", "optim: {}\ntrainer: {}")), ConfigKind::kSft);
  EXPECT_EQ(detect_kind(write("a.yaml", "compare: {}")), ConfigKind::kCompare);
  EXPECT_THAT(error_of([&] { detect_kind(write("a.yaml", "trainer: {}")); }),
              HasSubstr("say --kind"));
  EXPECT_THAT(error_of([&] { detect_kind(write("a.yaml", "optim: {}\nalgorithm: {}")); }),
              HasSubstr("say --kind"));
}

TEST_F(ConfigTest, FilesAreCheckedWhenAsked) {
  Config config =
      load(ConfigKind::kGrpo, "actor_rollout_ref:\n  model:\n    path: /does/not/exist\n");
  EXPECT_THAT(
      error_of([&] { check_files(config); }),
      HasSubstr("f.yaml:3: key 'actor_rollout_ref.model.path': '/does/not/exist' does not exist"));
  std::filesystem::create_directories(folder / "m");
  EXPECT_NO_THROW(check_files(load_config(
      ConfigKind::kGrpo, "", {"actor_rollout_ref.model.path=" + (folder / "m").string()})));
}

TEST_F(ConfigTest, DocsNameEveryKeyAndEveryRefusal) {
  std::string docs = config_docs();
  for (ConfigKind kind : {ConfigKind::kGrpo, ConfigKind::kSft})
    for (const Refusal& refusal : option_table(kind).refusals())
      EXPECT_THAT(docs, HasSubstr("`" + refusal.path + "`"));
  EXPECT_THAT(docs, HasSubstr("| `muon_tp_mode` |"));
}

class CompareTest : public ConfigFiles {
 public:
  std::string compare(const std::string& more) {
    write("grpo.yaml",
          "actor_rollout_ref:\n  actor: {ppo_mini_batch_size: 32}\ndata: {train_batch_size: 32}\n"
          "trainer: {total_training_steps: 80}\n");
    write("sft.yaml", "optim: {lr: 1e-3}\ntrainer: {total_training_steps: 400}\n");
    return "compare:\n  base: grpo.yaml\n" + more;
  }
  const std::string arms_ =
      "  arms:\n"
      "    adamw: {actor_rollout_ref.actor.optim.lr: 2e-4}\n"
      "    muon:\n"
      "      actor_rollout_ref.actor.optim: {optimizer: muon, lr: 3e-4, override_optimizer_config: "
      "{adam_beta2: 0.99}}\n"
      "      actor_rollout_ref: {actor: {clip_ratio_high: 0.28}}\n"
      "    none:\n";
};

TEST_F(CompareTest, ReadsArmsInOrderAsOverrides) {
  Config config =
      load(ConfigKind::kCompare, compare(arms_ + "  start: sft.yaml\n  overrides: {data.eval_size: "
                                                 "64}\n  start_overrides: {optim.lr: 2e-3}\n"));
  std::vector<CompareArm> arms = compare_arms(config);
  ASSERT_EQ(arms.size(), 3u);
  EXPECT_EQ(arms[0].name, "adamw");
  EXPECT_THAT(arms[0].overrides, ElementsAre("actor_rollout_ref.actor.optim.lr=0.0002"));
  EXPECT_THAT(
      arms[1].overrides,
      ElementsAre("actor_rollout_ref.actor.optim.optimizer=muon",
                  "actor_rollout_ref.actor.optim.lr=0.0003",
                  "actor_rollout_ref.actor.optim.override_optimizer_config={adam_beta2: 0.99}",
                  "actor_rollout_ref.actor.clip_ratio_high=0.28"));
  EXPECT_THAT(arms[2].overrides, ElementsAre());
  EXPECT_THAT(compare_overrides(config), ElementsAre("data.eval_size=64"));
  EXPECT_THAT(compare_start_overrides(config), ElementsAre("optim.lr=0.002"));
  EXPECT_THAT(config.integers("compare.seeds"), ElementsAre(1, 2, 3));
  EXPECT_EQ(config.text("compare.base"), (folder / "grpo.yaml").string());
  std::string text = to_yaml(config);
  EXPECT_EQ(to_yaml(load(ConfigKind::kCompare, text)), text);
}

// Mappings whose keys are no ways to other options reach an arm whole.
TEST_F(CompareTest, MappingsThatAreValuesStayWhole) {
  Config config = load(
      ConfigKind::kCompare,
      compare("  arms:\n    a: {}\n    b: {actor_rollout_ref.actor.optim: {optimizer: muon, "
              "routing_rules: {'.*gate.*': adam}, muon_matrix_layouts: {'.*q_proj.weight': {heads: "
              "{head_dim: 32}}}}}\n"));
  EXPECT_THAT(compare_arms(config)[1].overrides,
              ElementsAre("actor_rollout_ref.actor.optim.optimizer=muon",
                          "actor_rollout_ref.actor.optim.routing_rules={\".*gate.*\": adam}",
                          "actor_rollout_ref.actor.optim.muon_matrix_layouts={\".*q_proj.weight\": "
                          "{heads: {head_dim: 32}}}"));
}

TEST_F(CompareTest, OverridesOfTheBaseGoToEveryArm) {
  Config config =
      load(ConfigKind::kCompare, compare(arms_ + "  overrides: {trainer.test_freq: 5}\n"),
           {"trainer.total_training_steps=7", "compare.jobs=2", "trainer.test_freq=6"});
  EXPECT_THAT(
      compare_overrides(config),
      ElementsAre("trainer.test_freq=5", "trainer.total_training_steps=7", "trainer.test_freq=6"));
  EXPECT_EQ(config.integer("compare.jobs"), 2);
}

// With a start the arms read its model: a base that describes one itself could not run.
TEST_F(CompareTest, TheStartsModelIsTheArms) {
  std::string message =
      error(ConfigKind::kCompare,
            compare("  start: sft.yaml\n  arms: {a: {}, b: {}}\n"
                    "  overrides: {actor_rollout_ref.model.config.hidden_size: 64}\n"));
  EXPECT_THAT(message, HasSubstr("the model is described by actor_rollout_ref.model.path"));
}

TEST_F(CompareTest, FilesOfEveryRunAreCheckedWhenAsked) {
  std::string arms = "  arms: {a: {}, b: {actor_rollout_ref.model.path: /none}}\n";
  Config config = load(ConfigKind::kCompare, compare(arms));
  EXPECT_THAT(error_of([&] { check_files(config); }),
              AllOf(HasSubstr("'/none' does not exist"), HasSubstr("(in compare.arms.b)")));
  EXPECT_NO_THROW(check_files(load(ConfigKind::kCompare, compare(arms + "  start: sft.yaml\n"))));
}

TEST_F(CompareTest, RefusesWhatItCouldNotRun) {
  auto error_with = [&](const std::string& more) {
    return error(ConfigKind::kCompare, compare(more));
  };
  EXPECT_THAT(error_with(""),
              HasSubstr("key 'compare.arms': value {}: a comparison needs at least two arms"));
  EXPECT_THAT(error(ConfigKind::kCompare, "compare: {arms: {a: {}, b: {}}}"),
              HasSubstr("key 'compare.base': value null"));
  EXPECT_THAT(error_with("  arms: {b: {}, a: {actor_rollout_ref.actor.optim.lrr: 1}}\n"),
              AllOf(HasSubstr("f.yaml:3: unknown key 'actor_rollout_ref.actor.optim.lrr'"),
                    HasSubstr("(in compare.arms.a)")));
  EXPECT_THAT(error_with("  arms: {b: {}, a: {trainer.seed: 1}}\n"),
              HasSubstr("the comparison sets it for each run"));
  EXPECT_THAT(error_with("  arms: {b: {}, a: {trainer: {default_local_dir: x}}}\n"),
              HasSubstr("the comparison sets it for each run"));
  EXPECT_THAT(error_with("  arms: {a/b: {}, c: {}}\n"), HasSubstr("'a/b' is no folder's name"));
  EXPECT_THAT(error_with("  arms: {a: 3, b: {}}\n"),
              HasSubstr("key 'compare.arms.a': value 3; allowed: a mapping"));
  EXPECT_THAT(error_with("  arms: {a: {}, b: {}}\n  seeds: []\n"),
              HasSubstr("key 'compare.seeds': value []"));
  EXPECT_THAT(error_with("  arms: {a: {}, b: {}}\n  seeds: [1, 1]\n"),
              HasSubstr("different seeds"));
  EXPECT_THAT(error_with("  arms: {a: {}, b: {}}\n  start: grpo.yaml\n"),
              HasSubstr("key 'compare.start': value"));
  EXPECT_THAT(error_with("  arms: {a: {}, b: {}}\n  start: none.yaml\n"),
              HasSubstr("does not exist"));
  EXPECT_THAT(error_with("  arms: {a: {}, b: {}}\n  start_overrides: {optim.lr: 1}\n"),
              HasSubstr("compare.start is null"));
  EXPECT_THAT(
      error_with("  arms: {a: {}, b: {}}\n  start: sft.yaml\n  start_overrides: {optim.lr: -1}\n"),
      AllOf(HasSubstr("f.yaml:5: key 'optim.lr': value -1"), HasSubstr("(in compare.start)")));
  EXPECT_THAT(error_with("  arms: {a: {}, b: {}}\n  jobs: 0\n"),
              HasSubstr("key 'compare.jobs': value 0"));
}

}  // namespace
}  // namespace muoncore::train
