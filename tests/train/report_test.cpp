#include "muoncore/train/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <sstream>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"
#include "muoncore/train/report_text.h"

namespace muoncore::train {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

Quantity state_bytes() {
  return {.name = "optimizer_state_bytes",
          .label = "optimizer state",
          .unit = Unit::kBytes,
          .better = Better::kLower,
          .pairing = Pairing::kExact,
          .source = "what the optimizers hold.",
          .values = {{6368256, 6368256, 6368256}, {3222528, 3222528, 3222528}}};
}

Quantity reward() {
  return {.name = "reward_last_10",
          .label = "reward, last 10 steps",
          .unit = Unit::kScore,
          .better = Better::kHigher,
          .pairing = Pairing::kSeeds,
          .source = "mean of the last 10 steps.",
          .values = {{0.875, 0.92, 0.904}, {0.849, 0.864, 0.865}}};
}

Quantity step_time() {
  Quantity time{.name = "optimizer_step",
                .label = "optimizer_step",
                .unit = Unit::kSeconds,
                .better = Better::kLower,
                .pairing = Pairing::kTimedSteps,
                .source = "alternating steps.",
                .values = {{}, {}}};
  CounterRng rng({1, hash_name("report_test")});
  for (uint64_t i = 0; i < 20; ++i) {
    time.values[0].push_back(0.004 + 0.0002 * rng.normal(2 * i));
    time.values[1].push_back(0.035 + 0.001 * rng.normal(2 * i + 1));
  }
  return time;
}

MetricSeries curve(uint64_t key, double from, double to, double noise) {
  MetricSeries series;
  CounterRng rng({key, hash_name("curve")});
  for (int64_t step = 1; step <= 80; ++step) {
    series.steps.push_back(step);
    double t = static_cast<double>(step);
    series.values.push_back(to + (from - to) * std::exp(-t / 25) +
                            noise * rng.normal(static_cast<uint64_t>(step)));
  }
  return series;
}

Curve curves(const std::string& metric, double from, double first, double other, double noise) {
  Curve c{.metric = metric, .series = {{}, {}}};
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    double shift = 0.03 * static_cast<double>(seed);
    c.series[0].push_back(curve(seed, from + shift * from, first, noise));
    c.series[1].push_back(curve(seed + 10, from + shift * from, other, noise));
  }
  return c;
}

Report example() {
  Report report;
  report.title = "Addition: adamw and muon, 3 seeds";
  report.arms = {
      {"adamw", {"actor_rollout_ref.actor.optim.optimizer=adam"}},
      {"muon",
       {"actor_rollout_ref.actor.optim.optimizer=muon", "actor_rollout_ref.actor.optim.lr=3e-4"}}};
  report.seeds = {1, 2, 3};
  report.quantities = {state_bytes(), reward(), step_time()};
  report.curves = {curves("critic/rewards/mean", 0.3, 0.92, 0.9, 0.015),
                   curves("actor/lr", 1e-4, 2e-4, 3e-4, 0),
                   curves("actor/optim/update_rms/adam", 1.0, 0.25, 0.3, 0.01),
                   curves("val-core/addition/acc/mean@1", 0.25, 0.99, 0.98, 0.004)};
  report.curves.push_back(
      {"actor/optim/update_rms/muon", {{{}, {}, {}}, report.curves[2].series[1]}});
  report.setup = {{"cores", "2"}, {"wall time", "8 min 01 s"}};
  report.notes = {"Runs were side by side; <tokens/s> is indicative."};
  return report;
}

// Padding is the next test's: runs of spaces count as one.
std::string squeezed(const std::string& text) {
  return std::regex_replace(text, std::regex(" +"), " ");
}

std::string read(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

TEST(Report, TableHoldsValuesGapsSpreadsAndVerdicts) {
  std::string table = squeezed(tables(example()));
  EXPECT_THAT(table, HasSubstr("| optimizer state (B) "));
  EXPECT_THAT(table, HasSubstr(" 6,368,256 |"));
  EXPECT_THAT(table, HasSubstr(" 3,222,528 | -3,145,728 | -49.4 | | | holds (exact) |"));
  // Means 0.89967 and 0.85933, deviations 0.02281 and 0.00896, pooled 0.01733, differences'
  // 0.01510.
  EXPECT_THAT(table, HasSubstr("0.900 ± 0.023 [0.875, 0.920]"));
  EXPECT_THAT(table, HasSubstr("0.859 ± 0.009 [0.849, 0.865]"));
  EXPECT_THAT(table, HasSubstr("-0.040 | -4.5 | 0.017 | 2.3 | level within spread |"));
  EXPECT_THAT(table, HasSubstr("| optimizer_step (ms) "));
}

TEST(Report, RowsOfATableAreAligned) {
  std::istringstream lines(tables(example()));
  size_t width = 0;
  for (std::string line; std::getline(lines, line);) {
    auto points =
        static_cast<size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }));
    if (width == 0) width = points;
    EXPECT_EQ(points, width) << line;
  }
}

TEST(Report, FindingsSayNoMoreThanTheirVerdict) {
  Report report = example();
  EXPECT_EQ(
      finding(report, report.quantities[0], 1),
      "optimizer state: muon 3,222,528 B against adamw 6,368,256 B, 49.4 % lower: holds (exact)");
  EXPECT_EQ(finding(report, report.quantities[1], 1),
            "reward, last 10 steps: muon 0.859 against adamw 0.900: level within spread");
}

TEST(Report, OneSeedHasNoVerdict) {
  Report report = example();
  report.seeds = {1};
  report.quantities = {reward()};
  report.quantities[0].values = {{0.9}, {0.1}};
  report.curves.clear();
  EXPECT_THAT(tables(report), HasSubstr("one seed: no verdict"));
  EXPECT_THAT(tables(report), Not(HasSubstr("holds")));
  EXPECT_EQ(finding(report, report.quantities[0], 1),
            "reward, last 10 steps: muon 0.100 against adamw 0.900: one seed: no verdict");
}

TEST(Report, JsonKeepsEveryDigit) {
  Json json = Json::parse(to_json(example()).dump());
  const Json& time = json["quantities"][2];
  EXPECT_EQ(time["arms"]["adamw"]["values"][7].get<double>(), step_time().values[0][7]);
  EXPECT_EQ(json["quantities"][0]["gaps"]["muon"]["ratio"], nullptr);  // a gap without spread
  EXPECT_EQ(json["quantities"][1]["gaps"]["muon"]["verdict"], "level within spread");
  EXPECT_EQ(json["curves"]["critic/rewards/mean"]["muon"][2]["values"].size(), 80u);
  EXPECT_EQ(json["seeds"], Json({1, 2, 3}));
}

TEST(Report, MarkdownStatesRuleSourcesAndSetup) {
  std::string text = to_markdown(example());
  for (const char* part :
       {"# Addition: adamw and muon, 3 seeds", "2.48 times the spread",
        "optimizer state (lower is better): what the optimizers hold.", "wall time", "indicative"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(ReportText, ScalesFollowTheFirstArm) {
  Quantity time = step_time();
  EXPECT_EQ(scale_of(time).unit, "ms");
  time.values[0].assign(20, 2.0);
  EXPECT_EQ(scale_of(time).unit, "s");
  EXPECT_EQ(format_scaled(-0.0005, {.factor = 1, .decimals = 0, .unit = ""}), "0");
  EXPECT_EQ(format_scaled(1234567, {.factor = 1, .decimals = 0, .unit = ""}, true), "+1,234,567");
  EXPECT_EQ(format_scaled(-999, {.factor = 1, .decimals = 0, .unit = ""}), "-999");
  EXPECT_EQ(format_scaled(0, {.factor = 1, .decimals = 0, .unit = ""}, true), "0");
}

class DrawnReport : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/muoncore_report_XXXXXX";
    folder_ = mkdtemp(folder);
    write_report(example(), folder_);
  }
  void TearDown() override {
    unsetenv("MUONCORE_PYTHON");
    if (getenv("MUONCORE_KEEP") == nullptr) std::filesystem::remove_all(folder_);
  }
  std::filesystem::path folder_;
};

TEST_F(DrawnReport, PageHoldsItsPicturesAndRefersToNothingOutside) {
  draw_report(folder_);
  std::string page = read(folder_ / "report.html");
  for (const char* plot :
       {"verdicts.png", "learning.png", "updates.png", "memory.png", "times.png"})
    EXPECT_GT(std::filesystem::file_size(folder_ / plot), 5000u) << plot;
  size_t pictures = 0;
  for (size_t at = 0;
       (at = page.find("src=\"data:image/png;base64,iVBOR", at)) != std::string::npos; ++at)
    ++pictures;
  EXPECT_EQ(pictures, 5u);
  for (const char* outside : {"http://", "https://", "<script", "<link", "url(", "@import"})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  EXPECT_THAT(page, HasSubstr("&lt;tokens/s&gt; is indicative"));
  EXPECT_THAT(page, HasSubstr("3,222,528"));
}

TEST_F(DrawnReport, WithoutMatplotlibTheTextsStayAndTheErrorSaysWhatToDo) {
  setenv("MUONCORE_PYTHON", "/usr/bin/false", 1);
  EXPECT_THROW(draw_report(folder_), Error);
  setenv("MUONCORE_PYTHON", "/nonexistent/python", 1);
  try {
    draw_report(folder_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("/nonexistent/python: no such Python"));
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ / "report.md"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "report.json"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "report.html"));
}

}  // namespace
}  // namespace muoncore::train
