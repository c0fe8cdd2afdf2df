// Hand-made run folders with known answers.
#include "muoncore/train/compare_collect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "muoncore/core/check.h"
#include "muoncore/train/compare_progress.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace muoncore::train {
namespace {

using testing::Contains;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;
using Runs = std::vector<std::vector<RunResult>>;

constexpr double kGiB = 1073741824.0;

class Collect : public testing::Test {
 protected:
  // 12 steps; the reward is `reward` in the first two and reward + 0.1 in the last ten. The greedy
  // accuracy comes at steps 0 and 12. The peak is in step 5.
  std::filesystem::path make_run(const std::string& name, double reward, double accuracy,
                                 int64_t state) const {
    std::filesystem::path run = folder_ / name;
    std::filesystem::create_directories(run);
    std::ofstream out(run / "metrics.jsonl");
    out << Json{{"step", 0}, {"data", {{"val-core/addition/acc/mean@1", 0.25}}}}.dump() << "\n";
    for (int step = 1; step <= 12; ++step) {
      Json data = {{"critic/rewards/mean", step <= 2 ? reward : reward + 0.1},
                   {"actor/optim/state_bytes", state},
                   {"actor/perf/max_memory_allocated_gb", (step == 5 ? 3e8 : 2e8) / kGiB},
                   {"actor/perf/cpu_memory_used_gb", (4e8 + step) / kGiB},
                   {"actor/lr", 1e-4},
                   {"actor/optim/update_rms/adam", 0.5},
                   {"perf/throughput", 1000.0 * step}};
      if (state < 6000000) data["actor/optim/update_rms/muon"] = 0.23;
      if (step == 12) data["val-core/addition/acc/mean@1"] = accuracy;
      out << Json{{"step", step}, {"data", data}}.dump() << "\n";
    }
    std::ofstream(run / "resolved.json")
        << Json{{"memory_bytes", {{"optimizer_state", state}}}}.dump();
    return run;
  }

  Runs two_arms() const {
    return {{read_run(make_run("a1", 0.8, 0.98, 6368256)),
             read_run(make_run("a2", 0.82, 0.99, 6368256))},
            {read_run(make_run("m1", 0.75, 0.97, 3222528)),
             read_run(make_run("m2", 0.76, 1.0, 3222528))}};
  }

  std::string error_of(const Runs& runs) const {
    return muoncore::error_of([&] { collect_quantities(ConfigKind::kGrpo, runs, {}); });
  }

  void rewrite(const std::filesystem::path& file, const std::string& from,
               const std::string& to) const {
    std::string text = last_lines(file, 1000);
    size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    std::ofstream(file) << text.replace(at, from.size(), to);
  }

  ScratchFolder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
};

const Quantity& named(const std::vector<Quantity>& all, const std::string& name) {
  auto found = std::ranges::find(all, name, &Quantity::name);
  if (found == all.end()) throw std::out_of_range(name);
  return *found;
}

TEST_F(Collect, QuantitiesOfGrpoRuns) {
  std::vector<ArmTimes> times = {{{0.004, 0.005}, {0.7, 0.8}}, {{0.03, 0.04}, {0.75, 0.85}}};
  std::vector<Quantity> all = collect_quantities(ConfigKind::kGrpo, two_arms(), times);
  EXPECT_THAT(named(all, "optimizer_state_bytes").values,
              ElementsAre(ElementsAre(6368256, 6368256), ElementsAre(3222528, 3222528)));
  EXPECT_EQ(named(all, "optimizer_state_bytes").pairing, Pairing::kExact);
  EXPECT_THAT(named(all, "peak_tensor_bytes").values[1],
              ElementsAre(DoubleNear(3e8, 1), DoubleNear(3e8, 1)));
  EXPECT_THAT(named(all, "process_peak_bytes").values[0][0], DoubleNear(4e8 + 12, 1));
  EXPECT_THAT(named(all, "optimizer_step").values[1], ElementsAre(0.03, 0.04));
  EXPECT_THAT(named(all, "update_actor").values[0], ElementsAre(0.7, 0.8));
  EXPECT_EQ(named(all, "update_actor").pairing, Pairing::kTimedSteps);
  EXPECT_THAT(named(all, "reward_last_10").values[0],
              ElementsAre(DoubleNear(0.9, 1e-12), DoubleNear(0.92, 1e-12)));
  EXPECT_THAT(named(all, "greedy_accuracy").values[1], ElementsAre(0.97, 1.0));
  EXPECT_THAT(named(all, "tokens_per_second").values[0], ElementsAre(6500, 6500));
}

TEST_F(Collect, WithoutTimingThereAreNoTimes) {
  for (const Quantity& quantity : collect_quantities(ConfigKind::kGrpo, two_arms(), {}))
    EXPECT_NE(quantity.unit, Unit::kSeconds);
}

TEST_F(Collect, CurvesKeepMetricsOfOneArmAlone) {
  std::vector<Curve> curves = collect_curves(two_arms());
  auto muon = std::ranges::find(curves, "actor/optim/update_rms/muon", &Curve::metric);
  ASSERT_NE(muon, curves.end());
  EXPECT_THAT(muon->series[0][0].steps, IsEmpty());
  EXPECT_EQ(muon->series[1][1].values.size(), 12u);
  EXPECT_EQ(std::ranges::find(curves, "perf/throughput", &Curve::metric), curves.end());
}

TEST_F(Collect, AMissingMetricIsNamedWithItsFile) {
  Runs runs = two_arms();
  std::filesystem::path run = make_run("other", 0.5, 0.5, 3222528);
  for (int i = 0; i < 12; ++i)
    rewrite(run / "metrics.jsonl", "critic/rewards/mean", "critic/rewards/maen");
  runs[1][1] = read_run(run);
  EXPECT_EQ(error_of(runs),
            (run / "metrics.jsonl").string() +
                ": has no metric critic/rewards/mean; did you mean critic/rewards/maen?");
}

TEST_F(Collect, ANanIsRefusedWithItsLine) {
  std::filesystem::path run = make_run("nan", 0.5, 0.5, 3222528);
  rewrite(run / "metrics.jsonl", "\"critic/rewards/mean\":0.5", "\"critic/rewards/mean\":null");
  try {
    read_run(run);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                HasSubstr("metrics.jsonl:2: critic/rewards/mean is null, not a finite number"));
  }
}

TEST_F(Collect, AStateThatIsNotWhatTheFormulaSaysIsAnError) {
  Runs runs = two_arms();
  runs[1][0].formula_state_bytes += 4;
  EXPECT_THAT(error_of(runs),
              HasSubstr("actor/optim/state_bytes is 3222528, but the run's own plan"));
  EXPECT_THAT(error_of(runs), HasSubstr("says 3222532"));
}

TEST_F(Collect, ARunWithoutAnyOptimizerStepIsReportedAsSuch) {
  Runs runs = two_arms();
  const std::vector<ReportArm> arms = {{"adamw", {}}, {"muon", {}}};
  EXPECT_THAT(idle_notes(ConfigKind::kGrpo, arms, {1, 2}, runs), IsEmpty());
  const int64_t formula = runs[1][1].formula_state_bytes;
  runs[1][1] = read_run(make_run("idle", 0.0, 0.0, 0));
  runs[1][1].formula_state_bytes = formula;
  EXPECT_EQ(
      named(collect_quantities(ConfigKind::kGrpo, runs, {}), "optimizer_state_bytes").values[1][1],
      static_cast<double>(formula));
  EXPECT_THAT(idle_notes(ConfigKind::kGrpo, arms, {1, 2}, runs),
              ElementsAre(HasSubstr("muon, seed 2 took no optimizer step")));
}

TEST_F(Collect, ResolvedFilesAreChecked) {
  std::filesystem::path run = make_run("r", 0.5, 0.5, 3222528);
  std::ofstream(run / "resolved.json") << "{\"memory_bytes\": {}}";
  EXPECT_THROW(read_run(run), Error);
  std::ofstream(run / "resolved.json") << "{\"memory_bytes\"";
  EXPECT_THROW(read_run(run), Error);
  std::filesystem::remove(run / "resolved.json");
  EXPECT_THROW(read_run(run), Error);
}

TEST_F(Collect, StandingIsTheLastWholeLine) {
  std::filesystem::path run = make_run("s", 0.5, 0.5, 3222528);
  EXPECT_EQ(standing(run), "step 12, reward 0.600");
  std::ofstream(run / "metrics.jsonl", std::ios::app) << "{\"step\": 13, \"da";
  EXPECT_EQ(standing(run), "");
  EXPECT_EQ(standing(folder_ / "nothing"), "");
}

}  // namespace
}  // namespace muoncore::train
