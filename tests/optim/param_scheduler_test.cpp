#include "muoncore/optim/param_scheduler.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "muoncore/core/check.h"
#include "muoncore/optim/build.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json golden() {
  const auto path = std::filesystem::path(MUONCORE_TEST_DATA) / "golden/scheduler.json";
  return json::parse(std::ifstream(path));
}

SchedulerOptions options_of(const json& args) {
  SchedulerOptions o;
  o.lr_warmup_init = args["init_lr"];
  o.lr_warmup_steps = args["lr_warmup_steps"];
  o.lr_decay_steps = args["lr_decay_steps"];
  o.lr_decay_style = args["lr_decay_style"];
  if (!args["lr_wsd_decay_style"].is_null()) o.lr_wsd_decay_style = args["lr_wsd_decay_style"];
  if (!args["wsd_decay_steps"].is_null()) o.lr_wsd_decay_steps = args["wsd_decay_steps"];
  o.start_wd = args["start_wd"];
  o.end_wd = args["end_wd"];
  o.wd_incr_steps = args["wd_incr_steps"];
  o.wd_incr_style = args["wd_incr_style"];
  return o;
}

// The recorded third group overrides the weight decay: 0.02 to 0.2, or 0.2 throughout under
// "constant".
GroupSchedule group_of(const json& group, const std::string& wd_style) {
  GroupSchedule g{group["max_lr"], group["min_lr"], group["wd_mult"], {}, {}};
  if (!group.contains("end_wd")) return g;
  g.start_wd = wd_style == "constant" ? 0.2 : 0.02;
  g.end_wd = group["end_wd"].get<double>();
  return g;
}

TEST(ParamScheduler, EveryRecordedValueOfMegatron) {
  const json data = golden();
  int64_t values = 0;
  for (const auto& row : data["rows"]) {
    const SchedulerOptions options = options_of(row["args"]);
    validate(options);
    for (size_t g = 0; g < data["groups"].size(); ++g) {
      const GroupSchedule group = group_of(data["groups"][g], options.wd_incr_style);
      for (size_t step = 0; step < row["lr_wd_after_step"].size(); ++step, values += 2) {
        const auto& expected = row["lr_wd_after_step"][step][g];
        const double lr = expected[0], wd = expected[1];
        const auto n = static_cast<int64_t>(step);
        EXPECT_NEAR(lr_at(options, group, n), lr, 1e-18 + 1e-12 * lr) << row["args"] << n;
        EXPECT_NEAR(weight_decay_at(options, group, n), wd, 1e-18 + 1e-12 * wd) << n;
      }
    }
  }
  EXPECT_EQ(values, static_cast<int64_t>(data["rows"].size()) * 3 * 25 * 2);
  EXPECT_GE(data["rows"].size(), 16u);
}

TEST(ParamScheduler, WithoutWarmUpTheFirstStepIsAtFullRate) {
  const GroupSchedule group{.max_lr = 1.0, .min_lr = 0.1, .start_wd = {}, .end_wd = {}};
  for (const char* style : {"constant", "linear", "cosine", "inverse-square-root"}) {
    SchedulerOptions o{.lr_decay_steps = 10, .lr_decay_style = style, .lr_wsd_decay_steps = {}};
    EXPECT_EQ(lr_at(o, group, 0), 1.0) << style;
    EXPECT_EQ(lr_at(o, group, 11), o.lr_decay_style == "constant" ? 1.0 : 0.1) << style;
  }
}

std::string refusal(const SchedulerOptions& options) {
  try {
    validate(options, "optim.");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ParamScheduler, RefusalsNameTheKeys) {
  const SchedulerOptions good{.lr_decay_steps = 10, .lr_wsd_decay_steps = {}};
  EXPECT_EQ(refusal(good), "");
  auto with = [&](auto change) {
    SchedulerOptions o = good;
    change(o);
    return refusal(o);
  };
  EXPECT_THAT(with([](auto& o) { o.lr_warmup_steps = 10; }),
              AllOf(HasSubstr("optim.lr_warmup_steps"), HasSubstr("optim.lr_decay_steps")));
  EXPECT_THAT(with([](auto& o) { o.lr_decay_style = "WSD"; }),
              AllOf(HasSubstr("optim.lr_decay_style"), HasSubstr("optim.lr_wsd_decay_steps")));
  EXPECT_THAT(with([](auto& o) { o.lr_decay_style = "inverse_square_root"; }),
              HasSubstr("did you mean 'inverse-square-root'?"));
  EXPECT_THAT(with([](auto& o) { o.lr_decay_style = "wsd"; }),
              HasSubstr("inverse-square-root, WSD"));
  EXPECT_THAT(with([](auto& o) {
                o.lr_decay_style = "WSD";
                o.lr_warmup_steps = 5;
                o.lr_wsd_decay_steps = 6;
              }),
              HasSubstr("allowed are 1 to 5"));
  EXPECT_THAT(with([](auto& o) { o.lr_wsd_decay_style = "sqrt"; }), HasSubstr("minus_sqrt"));
  EXPECT_THAT(with([](auto& o) { o.wd_incr_style = "square"; }),
              HasSubstr("optim.weight_decay_incr_style"));
  EXPECT_THAT(with([](auto& o) { o.end_wd = 0.1; }), HasSubstr("contradicts"));
  EXPECT_THAT(with([](auto& o) { o.wd_incr_style = "linear"; }), HasSubstr("at least one step"));
  EXPECT_THAT(with([](auto& o) { o.start_wd = o.end_wd = -0.1; }), HasSubstr("weight_decay"));
  EXPECT_THAT(with([](auto& o) { o.lr_decay_steps = 0; }), HasSubstr("numbers from 1"));
  EXPECT_THAT(with([](auto& o) { o.lr_warmup_init = std::nan(""); }), HasSubstr("lr_warmup_init"));
}

TEST(ParamScheduler, DrivesEveryGroupAndRestores) {
  const std::vector<NamedParam> params{testing::named("w", ParamRole::kMatrix, {4, 6}),
                                       testing::named("e", ParamRole::kEmbedding, {8, 4}),
                                       testing::named("b", ParamRole::kBias, {4})};
  OptimizerConfig config;
  config.optimizer = "muon";
  config.lr = 0.1;
  config.adam_lr = 0.02;
  config.adam_weight_decay = 0.3;
  config.weight_decay = 0.5;
  config.lr_decay_style = "linear";
  config.total_training_steps = 10;
  config.lr_warmup_steps_ratio = 0.25;  // int(2.5) = 2
  auto chain = build_optimizer(params, config);
  OptimizerParamScheduler scheduler(*chain, scheduler_options(config));
  auto& groups = chain->param_groups();
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].name, "muon");
  EXPECT_EQ(groups[1].name, "adam");
  EXPECT_EQ(groups[2].name, "adam_no_decay");
  EXPECT_EQ(groups[0].lr(), 0.0);
  scheduler.step();
  EXPECT_DOUBLE_EQ(scheduler.lr(), 0.05);
  EXPECT_DOUBLE_EQ(groups[1].lr(), 0.01);
  scheduler.step(5);  // step 6: (6 - 2) / 8 of the decay
  EXPECT_DOUBLE_EQ(groups[0].lr(), 0.05);
  EXPECT_DOUBLE_EQ(groups[1].lr(), 0.01);
  EXPECT_EQ(groups[0].weight_decay(), 0.5);
  EXPECT_EQ(groups[1].weight_decay(), 0.3);
  EXPECT_EQ(groups[2].weight_decay(), 0.0);
  EXPECT_EQ(scheduler.weight_decay(), 0.5);
  auto other = build_optimizer(params, config);
  OptimizerParamScheduler resumed(*other, scheduler_options(config));
  resumed.restore(scheduler.num_steps());
  for (size_t i = 0; i < groups.size(); ++i) {
    EXPECT_EQ(other->param_groups()[i].lr(), groups[i].lr());
    EXPECT_EQ(other->param_groups()[i].weight_decay(), groups[i].weight_decay());
  }
  EXPECT_THROW(resumed.restore(-1), Error);
}

}  // namespace
}  // namespace muoncore::optim
