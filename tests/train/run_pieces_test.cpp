// Metrics, micro-batches, gates, run folder, phases, loggers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "muoncore/core/counting_allocator.h"
#include "muoncore/train/gates.h"
#include "muoncore/train/loggers.h"
#include "muoncore/train/metrics.h"
#include "muoncore/train/micro_batches.h"
#include "muoncore/train/phases.h"
#include "muoncore/train/run_dir.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/train_fixture.h"

namespace muoncore::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MetricsTest, DistributionAndMerge) {
  Metrics m;
  add_distribution(m, "critic/score", std::vector<double>{1.0, 0.0, 0.5});
  add_distribution(m, "none", std::vector<double>{});
  EXPECT_EQ(
      m,
      (Metrics{{"critic/score/mean", 0.5}, {"critic/score/max", 1.0}, {"critic/score/min", 0.0}}));
  MetricMerger merger;
  merger.add({{"a/max", 1.0}, {"b/min", 1.0}, {"c", 1.0}});
  merger.add({{"a/max", 3.0}, {"b/min", -1.0}, {"c", 2.0}, {"d", 7.0}});
  EXPECT_EQ(merger.merged(), (Metrics{{"a/max", 3.0}, {"b/min", -1.0}, {"c", 1.5}, {"d", 7.0}}));
}

TEST(MicroBatchesTest, EveryRowOnceByAscendingLength) {
  const std::vector<int64_t> lengths = {5, 2, 9, 2, 7};
  EXPECT_THAT(split_rows(lengths, {}), ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
  EXPECT_THAT(split_rows(lengths, 9), ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
  EXPECT_THAT(split_rows(lengths, 2),
              ElementsAre(ElementsAre(1, 3), ElementsAre(0, 4), ElementsAre(2)));
  EXPECT_EQ(longest(lengths, {0, 4}), 7);
  const auto x = torch::arange(15).view({5, 3});
  EXPECT_TRUE(take_rows(x, {4, 0}, 2).equal(torch::tensor({{12, 13}, {0, 1}})));
}

TEST(GatesTest, OffByDefault) {
  Gates gates({});
  EXPECT_NO_THROW(gates.check(1, {{"actor/ppo_kl", 1e9},
                                  {"actor/entropy", 0.0},
                                  {"actor/optim/update_rms/muon", 1e9},
                                  {"val-core/addition/acc/mean@1", 0.0}}));
}

TEST(GatesTest, EachNamesItsKeyAndMeasure) {
  GateSettings s;
  s.max_kl = 0.1;
  s.min_entropy = 0.5;
  s.max_entropy = 3.0;
  s.min_update_rms = 0.1;
  s.max_update_rms = 1.0;
  const auto stop = [&](const Metrics& m) { return error_of([&] { Gates(s).check(3, m); }); };
  EXPECT_EQ(
      stop({{"actor/ppo_kl", 0.1}, {"actor/entropy", 0.5}, {"actor/optim/update_rms/adam", 1.0}}),
      "no error");
  EXPECT_THAT(
      stop({{"actor/ppo_kl", -0.2}}),
      HasSubstr("step 3 by the gate trainer.gates.max_kl: |actor/ppo_kl| is 0.2, above 0.1"));
  EXPECT_THAT(stop({{"actor/kl_loss", 0.2}}), HasSubstr("max_kl"));
  EXPECT_THAT(stop({{"actor/entropy", 0.4}}), HasSubstr("min_entropy"));
  EXPECT_THAT(stop({{"actor/entropy", 3.5}}), HasSubstr("max_entropy"));
  EXPECT_THAT(stop({{"actor/optim/update_rms/muon", 1.5}}),
              HasSubstr("max_update_rms: actor/optim/update_rms/muon"));
  EXPECT_THAT(stop({{"actor/optim/update_rms/muon", 0.05}}), HasSubstr("min_update_rms"));
  EXPECT_THAT(stop({{"actor/entropy", std::nan("")}}), HasSubstr("entropy"));
}

TEST(GatesTest, AccuracyWaitsForItsPatience) {
  GateSettings s;
  s.min_accuracy_ratio = 0.5;
  s.accuracy_patience = 2;
  Gates gates(s);
  const auto accuracy = [](double a) { return Metrics{{"val-core/addition/acc/mean@1", a}}; };
  EXPECT_NO_THROW(gates.check(0, accuracy(0.4)));
  EXPECT_NO_THROW(gates.check(10, accuracy(0.1)));
  EXPECT_NO_THROW(gates.check(15, {{"actor/loss", 0.0}}));  // no validation in this step
  EXPECT_NO_THROW(gates.check(20, accuracy(0.3)));          // recovered
  EXPECT_NO_THROW(gates.check(30, accuracy(0.1)));
  EXPECT_THAT(error_of([&] { gates.check(40, accuracy(0.1)); }), HasSubstr("min_accuracy_ratio"));
}

TEST(RunDirTest, RefusesAFolderThatIsNotEmptyAndSaysTheWayOut) {
  const ScratchFolder scratch;
  const auto path = scratch.path() / "a" / "b";
  const RunDir made = RunDir::create(path);
  EXPECT_TRUE(std::filesystem::is_directory(path));
  EXPECT_NO_THROW(RunDir::create(path));  // still empty
  made.set_latest_checkpoint(40);
  std::ifstream in(path / "latest_checkpointed_iteration.txt");
  std::string text;
  std::getline(in, text);
  EXPECT_EQ(text, "40");
  const std::string message = error_of([&] { RunDir::create(path); });
  EXPECT_THAT(message, HasSubstr("trainer.default_local_dir"));
  EXPECT_THAT(message, HasSubstr("latest_checkpointed_iteration.txt"));
  EXPECT_THAT(message, HasSubstr("remove this one"));
  write_file_atomically(scratch.path() / "file", "x");
  EXPECT_THAT(error_of([&] { RunDir::create(scratch.path() / "file"); }),
              HasSubstr("not a folder"));
  EXPECT_THAT(error_of([] { RunDir::create("/proc/none/run"); }), HasSubstr("cannot make"));
}

TEST(PhasesTest, TimesAndPeaks) {
  install_counting_allocator();
  PhaseRecorder recorder{c10::Device(c10::DeviceType::CPU)};
  const auto before = static_cast<double>(live_tensor_bytes());
  {
    const auto outer = recorder.phase("update_actor");
    const auto inner = recorder.phase("optimizer_step");
    const auto t = torch::empty({1 << 18});
  }
  const Metrics m = recorder.take();
  EXPECT_EQ(m.at("perf/memory/peak_bytes/optimizer_step") - before, 4 << 18);
  EXPECT_EQ(m.at("perf/memory/peak_bytes/update_actor") - before, 4 << 18);
  EXPECT_EQ(m.at("perf/memory/live_bytes"), before);
  EXPECT_EQ(m.at("perf/memory/live_bytes/update_actor"), before);
  EXPECT_EQ(m.at("perf/memory/live_bytes/optimizer_step"), before);
  EXPECT_GE(m.at("timing_s/update_actor"), m.at("timing_s/optimizer_step"));
  EXPECT_GT(m.at("actor/perf/cpu_memory_used_gb"), 0.0);
  EXPECT_EQ(recorder.take().count("timing_s/update_actor"), 0u);
}

TEST(LoggersTest, FileAndTensorBoard) {
  const ScratchFolder scratch;
  {
    auto loggers = make_loggers({"file", "tensorboard"}, scratch.path(), 10);
    for (auto& logger : loggers) logger->log(3, {{"actor/lr", 1e-4}, {"b", 2.0}});
  }
  std::ifstream in(scratch.path() / "metrics.jsonl");
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, R"({"step":3,"data":{"actor/lr":0.0001,"b":2.0}})");
  EXPECT_FALSE(std::filesystem::is_empty(scratch.path() / "tensorboard"));
  EXPECT_THAT(error_of([&] { make_loggers({"wandb"}, scratch.path(), 1); }),
              HasSubstr("'wandb' is no logger; allowed: console, file, tensorboard"));
}

TEST(LoggersTest, ConsoleLine) {
  EXPECT_EQ(
      console_line(
          12, 80,
          {{"critic/rewards/mean", 0.4126}, {"val-core/addition/acc/mean@1", 0.5}, {"zzz", 1.0}}),
      "step 12/80  reward 0.4126  accuracy 0.5000");
}

}  // namespace
}  // namespace muoncore::train
