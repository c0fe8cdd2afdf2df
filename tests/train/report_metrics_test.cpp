#include "muoncore/train/report_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "muoncore/core/check.h"
#include "tests/support/error_of.h"

namespace muoncore::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

MetricLog parse(const std::string& text) { return MetricLog::parse(text, "run/metrics.jsonl"); }

std::string error_of(const std::string& text) {
  return muoncore::error_of([&] { parse(text); });
}

const char* kGood =
    "{\"step\": 1, \"data\": {\"critic/rewards/mean\": 0.25, \"val-core/addition/acc/mean@1\": "
    "0.5}}\n"
    "{\"step\": 2, \"data\": {\"critic/rewards/mean\": 0.75}}\n"
    "{\"step\": 4, \"data\": {\"critic/rewards/mean\": 1e-300, \"val-core/addition/acc/mean@1\": "
    "1}}\n";

TEST(MetricLog, ReadsSeriesWithTheirSteps) {
  MetricLog log = parse(kGood);
  const MetricSeries& reward = log.series("critic/rewards/mean");
  EXPECT_THAT(reward.steps, ElementsAre(1, 2, 4));
  EXPECT_THAT(reward.values, ElementsAre(0.25, 0.75, 1e-300));
  EXPECT_EQ(reward.max(), 0.75);
  EXPECT_EQ(reward.median(), 0.25);
  EXPECT_EQ(reward.mean_of_last(2), 0.375);
  EXPECT_DOUBLE_EQ(reward.mean_of_last(10), 1.0 / 3);
  EXPECT_THAT(log.series("val-core/addition/acc/mean@1").steps, ElementsAre(1, 4));
  EXPECT_EQ(log.series("val-core/addition/acc/mean@1").median(), 0.75);
  EXPECT_THAT(log.names("val-core/", "/acc/mean@1"), ElementsAre("val-core/addition/acc/mean@1"));
  EXPECT_THAT(log.names("val-core/", "/reward"), IsEmpty());
}

TEST(MetricLog, AMissingMetricIsNamedWithItsNearest) {
  try {
    parse(kGood).series("critic/reward/mean");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "run/metrics.jsonl: has no metric critic/reward/mean; did you mean critic/rewards/mean?");
  }
}

TEST(MetricLog, RefusesWhatIsNoFiniteNumber) {
  std::string first = "{\"step\": 1, \"data\": {\"a\": 1}}\n";
  EXPECT_EQ(error_of(first + "{\"step\": 2, \"data\": {\"a\": null}}\n"),
            "run/metrics.jsonl:2: a is null, not a finite number");
  EXPECT_THAT(error_of("{\"step\": 1, \"data\": {\"a\": NaN}}\n"),
              HasSubstr("run/metrics.jsonl:1: not a JSON object"));
  EXPECT_THAT(error_of("{\"step\": 1, \"data\": {\"a\": 1e999}}\n"), HasSubstr(":1:"));
  EXPECT_THAT(error_of("{\"step\": 1, \"data\": {\"a\": \"0.5\"}}\n"),
              HasSubstr("a is \"0.5\", not a finite number"));
  EXPECT_THAT(error_of("{\"step\": 1, \"data\": {\"a\": true}}\n"),
              HasSubstr("not a finite number"));
}

TEST(MetricLog, RefusesMalformedFiles) {
  EXPECT_EQ(error_of(""), "run/metrics.jsonl: is empty");
  EXPECT_THAT(error_of("{\"step\": 1, \"data\": {}}"), HasSubstr("cut off"));
  EXPECT_THAT(error_of("{\"step\": 1, \"da\n"), HasSubstr("cut off or malformed"));
  EXPECT_THAT(error_of("\n"), HasSubstr(":1: not a JSON object"));
  EXPECT_THAT(error_of("[1, 2]\n"), HasSubstr("not a JSON object (array)"));
  EXPECT_THAT(error_of("{\"data\": {}}\n"), HasSubstr("no integer \"step\""));
  EXPECT_THAT(error_of("{\"step\": 1.5, \"data\": {}}\n"), HasSubstr("no integer \"step\""));
  EXPECT_THAT(error_of("{\"step\": 1, \"data\": 3}\n"), HasSubstr("no object \"data\""));
}

TEST(MetricLog, RefusesStepsThatGoBackAndNamesThatRepeat) {
  EXPECT_THAT(error_of("{\"step\": 3, \"data\": {}}\n{\"step\": 2, \"data\": {}}\n"),
              HasSubstr(":2: step 2 comes after step 3"));
  EXPECT_THAT(
      error_of("{\"step\": 3, \"data\": {\"a\": 1}}\n{\"step\": 3, \"data\": {\"a\": 1}}\n"),
      HasSubstr("a occurs twice at step 3"));
  // Two lines of one step that share no name: a validation after its training step.
  EXPECT_THAT(
      parse("{\"step\": 3, \"data\": {\"a\": 1}}\n{\"step\": 3, \"data\": {\"b\": 2}}\n").names(""),
      ElementsAre("a", "b"));
}

TEST(MetricLog, AFileThatIsNotThere) {
  EXPECT_THROW(MetricLog::read("/nonexistent/metrics.jsonl"), Error);
}

}  // namespace
}  // namespace muoncore::train
