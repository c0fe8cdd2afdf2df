#include "muoncore/train/run.h"

#include <deque>

#include "muoncore/core/check.h"
#include "muoncore/core/counting_allocator.h"
#include "muoncore/core/log.h"
#include "muoncore/core/memory.h"
#include "muoncore/core/rng.h"
#include "muoncore/core/timer.h"
#include "muoncore/io/atomic_folder.h"
#include "muoncore/train/checkpoint.h"
#include "muoncore/train/config_derived.h"
#include "muoncore/train/config_ranks.h"
#include "muoncore/train/gates.h"
#include "muoncore/train/grpo_trainer.h"
#include "muoncore/train/loggers.h"
#include "muoncore/train/run_dir.h"
#include "muoncore/train/sft_trainer.h"

namespace muoncore::train {
namespace {

std::optional<double> bound(const Config& config, const std::string& key) {
  const std::string path = "trainer.gates." + key;
  if (!config.declares(path) || config.is_null(path)) return std::nullopt;
  return config.real(path);
}

GateSettings gate_settings(const Config& config) {
  GateSettings out;
  out.min_accuracy_ratio = bound(config, "min_accuracy_ratio");
  out.accuracy_patience = config.integer("trainer.gates.accuracy_patience");
  out.max_kl = bound(config, "max_kl");
  out.min_entropy = bound(config, "min_entropy");
  out.max_entropy = bound(config, "max_entropy");
  out.min_update_rms = bound(config, "min_update_rms");
  out.max_update_rms = bound(config, "max_update_rms");
  return out;
}

struct Schedule {
  bool validate_first = false;
  int64_t test_freq = -1;
  int64_t save_freq = -1;
  std::optional<int64_t> keep;  // saved models

  static bool due(int64_t step, int64_t every, int64_t total) {
    return step == total || (every > 0 && step % every == 0);
  }
};

Schedule schedule(const Config& config) {
  const std::string keep = config.kind() == ConfigKind::kSft ? "trainer.max_ckpt_to_keep"
                                                             : "trainer.max_actor_ckpt_to_keep";
  Schedule out;
  out.validate_first = config.flag("trainer.val_before_train");
  out.test_freq = config.integer("trainer.test_freq");
  out.save_freq = config.integer("trainer.save_freq");
  if (!config.is_null(keep)) out.keep = config.integer(keep);
  return out;
}

// One run's outputs.
class Recorder {
 public:
  // Rank 0 records; the others say how far they are, to their logs.
  Recorder(const Config& config, const std::filesystem::path& folder, int64_t total,
           const Ranks& ranks) {
    std::vector<std::string> names = config.texts("trainer.logger");
    if (ranks.rank() != 0) std::erase_if(names, [](const auto& name) { return name != "console"; });
    loggers_ = make_loggers(names, folder, total);
  }
  void log(int64_t step, const Metrics& metrics) {
    for (auto& logger : loggers_) logger->log(step, metrics);
  }

 private:
  std::vector<std::unique_ptr<MetricLogger>> loggers_;
};

// Saves models and drops the oldest beyond `keep`. Rank 0 writes, the others wait.
class Saver {
 public:
  Saver(const RunDir& dir, std::optional<int64_t> keep) : dir_(dir), keep_(keep) {}

  double save(int64_t step, Trainer& trainer) {
    const Stopwatch watch;
    models::CausalLM& model = trainer.model();
    trainer.ranks().on_rank_0(
        [&] {
          save_model(dir_, step, model, trainer.tokenizer());
          drop_oldest(step);
        },
        "the saved model");
    return watch.seconds();
  }

 private:
  void drop_oldest(int64_t step) {
    saved_.push_back(step);
    while (keep_ && static_cast<int64_t>(saved_.size()) > *keep_) {
      io::remove_folder(dir_.path() / fmt::format("global_step_{}", saved_.front()));
      saved_.pop_front();
    }
  }

  const RunDir& dir_;
  std::optional<int64_t> keep_;
  std::deque<int64_t> saved_;
};

void open_log(const RunDir& dir, const Ranks& ranks) {
  const std::filesystem::path folder = dir.path() / "logs";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, "cannot make the folder {}: {}", folder.string(), error.message());
  set_log_file(folder / fmt::format("rank_{}.log", ranks.rank()));
}

void warn_of_crowding(int threads, const Ranks& ranks) {
  const int64_t wanted = threads * ranks.local_size();
  const int cores = usable_cores();
  if (ranks.local_size() > 1 && wanted > cores)
    log_warning("{} ranks with {} thread{} each on {} core{}: they wait for one another",
                ranks.local_size(), threads, threads == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
}

// Says what the run is; rank 0 writes it down.
void write_facts(const Config& config, const RunDir& dir, Trainer& trainer) {
  const models::CausalLM& model = trainer.model();
  StartupFacts facts = trainer.facts();
  facts.run_dir = dir.path().string();
  nlohmann::json resolved = resolved_json(config, facts.total_steps);
  resolved.update(startup_json(facts, model, trainer.wrapped()));
  trainer.ranks().on_rank_0(
      [&] {
        write_file_atomically(dir.path() / "config.yaml", to_yaml(config));
        write_file_atomically(dir.path() / "resolved.json", resolved.dump(2) + "\n");
      },
      "the run's config");
  if (facts.ranks > 1) open_log(dir, trainer.ranks());
  log_info("{}", startup_report(facts, model, trainer.wrapped()));
  warn_of_crowding(facts.threads, trainer.ranks());
}

void train_all(Trainer& trainer, const Schedule& plan, Gates& gates, Recorder& recorder,
               Saver& saver) {
  const int64_t total = trainer.total_steps();
  const bool judges = trainer.ranks().rank() == 0;  // the others hear of it
  const Stopwatch watch;
  ProgressBar bar(trainer.facts().command, total);
  if (plan.validate_first) {
    if (const Metrics first = trainer.validate(); !first.empty()) {
      recorder.log(0, first);
      if (judges) gates.check(0, first);
    }
  }
  for (int64_t step = 1; step <= total; ++step) {
    Metrics metrics = trainer.step();
    if (Schedule::due(step, plan.test_freq, total)) metrics.merge(trainer.validate());
    if (Schedule::due(step, plan.save_freq, total)) {
      metrics["timing_s/save_checkpoint"] = saver.save(step, trainer);
    }
    recorder.log(step, metrics);
    bar.update(step, watch.seconds());
    if (judges) gates.check(step, metrics);
  }
  log_info("{} done: {} steps in {}", trainer.facts().command, total,
           format_duration(watch.seconds()));
}

}  // namespace

std::unique_ptr<Trainer> make_trainer(const Config& config, const Ranks& ranks) {
  switch (config.kind()) {
    case ConfigKind::kGrpo:
      return std::make_unique<GrpoTrainer>(config, ranks);
    case ConfigKind::kSft:
      return std::make_unique<SftTrainer>(config, ranks);
    case ConfigKind::kCompare:
      break;
  }
  throw std::logic_error("make_trainer: a comparison has no trainer of its own");
}

void run_training(const Config& config, comm::World& world) {
  install_counting_allocator();
  keep_freed_memory();
  check_launch(config, world.env());
  world.agree("the config", hash_name(to_yaml(config)));
  const Ranks ranks(world.group(), world.factory(), world.env().local_world_size);
  std::optional<RunDir> dir;
  ranks.on_rank_0([&] { dir = RunDir::create(run_folder(config)); }, "the run's folder");
  if (!dir) dir = RunDir::join(run_folder(config));
  const auto trainer = make_trainer(config, ranks);
  write_facts(config, *dir, *trainer);
  const Schedule plan = schedule(config);
  Gates gates(gate_settings(config));
  Recorder recorder(config, dir->path(), trainer->total_steps(), ranks);
  Saver saver(*dir, plan.keep);
  train_all(*trainer, plan, gates, recorder, saver);
  log_info("model saved in {}", dir->model_folder(trainer->total_steps()).string());
}

void run_training(const Config& config) {
  comm::World alone(comm::LaunchEnv{}, {});
  run_training(config, alone);
}

}  // namespace muoncore::train
