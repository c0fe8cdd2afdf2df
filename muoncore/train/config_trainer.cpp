// Options of `trainer`: how long, how often, where to, on what; and the gates.
#include "muoncore/train/config_tables.h"

namespace muoncore::train {
namespace {

constexpr const char* kNoResume = "resume is not built yet";

Row ranks_per_node() {
  return null_integer("n_gpus_per_node",
                      "null: as many ranks as the launcher starts on a node; another number is an "
                      "error")
      .at_least(1);
}

std::vector<Row> shared_rows(ConfigKind kind) {
  bool sft = kind == ConfigKind::kSft;
  return {
      integer("total_epochs", sft ? 4 : 30, "passes over the training prompts").at_least(1),
      null_integer("total_training_steps", "steps of the run; wins over total_epochs").at_least(1),
      text("project_name", "muoncore", "first part of the run's folder")
          .verl(sft ? "gsm8k-sft" : "verl_examples"),
      text("experiment_name", sft ? "sft" : "grpo", "second part of the run's folder")
          .verl(sft ? "test" : "gsm8k"),
      texts("logger", {"console", "file", "tensorboard"}, "where metrics go")
          .one_of({"console", "file", "tensorboard"})
          .why("services on the network are not written to")
          .verl_node(YamlNode::list({YamlNode::of("console"), YamlNode::of("wandb")})),
      null_integer("nnodes",
                   "null: as many as the launcher starts ranks on; another number is an "
                   "error")
          .at_least(1)
          .verl(1),
      integer("save_freq", -1, "steps between checkpoints; -1: after the last step alone")
          .at_least(1)
          .also(-1),
      integer("test_freq", -1, "steps between validations; -1: after the last step alone")
          .at_least(1)
          .also(-1),
      text("resume_mode", "disable", "auto: as disable, until resume exists")
          .one_of({"disable", "auto"})
          .why(kNoResume)
          .verl("auto"),
      only_null("resume_from_path", kNoResume),
      null_text("default_local_dir",
                "the run's folder, which must be empty; null: "
                "checkpoints/<project_name>/<experiment_name>")
          .verl("checkpoints/${trainer.project_name}/${trainer.experiment_name}"),
      only_null("default_hdfs_dir", "checkpoints are local"),
      text("device", "auto", "auto: cuda where there is one, else cpu")
          .one_of({"auto", "cpu", "cuda"})
          .verl("cuda"),
      null_integer("threads",
                   "of the CPU, per rank; null: the cores divided by the ranks of the node")
          .at_least(1)
          .added(),
  };
}

std::vector<Row> grpo_rows() {
  return {
      ranks_per_node().verl(8),
      integer("seed", 1, "every random number of the run depends on it").at_least(0).added(),
      flag("val_before_train", true, "validate before the first step"),
      only_flag("val_only", false, "use `muoncore generate`"),
      null_integer("max_actor_ckpt_to_keep", "checkpoints that are kept; null: all").at_least(1),
      only_integer("critic_warmup", 0, "grpo has no critic"),
      only_integer("log_val_generations", 0, "not built yet"),
      null_text("rollout_data_dir",
                "folder for a file of each step's rollouts (JSON lines); null: none"),
      only_null("validation_data_dir", "not built yet"),
  };
}

std::vector<Row> sft_rows() {
  return {
      ranks_per_node().verl(1),
      integer("nccl_timeout", 600,
              "seconds after which a collective that a rank does not join is an error; checkpoints "
              "do not count")
          .at_least(1)
          .added(),
      integer("seed", 1, "every random number of the run depends on it").at_least(0),
      flag("val_before_train", false, "validate before the first step").added(),
      null_integer("max_ckpt_to_keep", "checkpoints that are kept; null: all").at_least(1),
  };
}

// Off (null) unless set; their meaning: train/gates.h. A run that a gate stops ends with the
// reason.
std::vector<Row> gate_rows(ConfigKind kind) {
  std::vector<Row> rows = {
      null_real("gates.min_accuracy_ratio",
                "stop when held-out accuracy falls below this share of its first value")
          .above(0),
      integer("gates.accuracy_patience", 1, "validations in a row that gate waits for").at_least(1),
      null_real("gates.min_update_rms", "stop when a group's update RMS falls below").at_least(0),
      null_real("gates.max_update_rms", "stop when a group's update RMS rises above").above(0),
  };
  if (kind == ConfigKind::kGrpo) {
    rows.push_back(null_real("gates.max_kl", "stop when the KL divergence rises above").above(0));
    rows.push_back(null_real("gates.min_entropy", "stop when the entropy falls below").at_least(0));
    rows.push_back(null_real("gates.max_entropy", "stop when the entropy rises above").above(0));
  }
  for (Row& row : rows) row = std::move(row).added();
  return rows;
}

}  // namespace

Options trainer_options(ConfigKind kind) {
  Options options = under("trainer", shared_rows(kind));
  append(options, under("trainer", kind == ConfigKind::kSft ? sft_rows() : grpo_rows()));
  append(options, under("trainer", gate_rows(kind)));
  return options;
}

Refusals trainer_refusals(ConfigKind kind) {
  Refusals all = refuse("trainer", {"balance_batch", "balance_keep_minibatch"},
                        "rows are dealt to ranks in their order");
  if (kind == ConfigKind::kSft) {
    append(all, refuse("trainer", {"profile_interval"}, "the timers are always on (timing_s/...)"));
    return all;
  }
  append(all, refuse("trainer", {"max_critic_ckpt_to_keep"}, "grpo has no critic"));
  append(all, refuse("trainer", {"del_local_ckpt_after_load"}, kNoResume));
  append(all, refuse("trainer", {"checkpoint_callback_class"}, "no Python code is run"));
  append(all, refuse("trainer", {"esi_redundant_time", "ray_wait_register_center_timeout"},
                     "there is no Ray underneath"));
  append(all, refuse("trainer", {"use_v1", "v1"}, "there is one trainer: sync"));
  return all;
}

}  // namespace muoncore::train
