// Every refusal of the optimizer's settings, and what build_optimizer refuses of the parameters.
#include <gmock/gmock.h>

#include <limits>

#include "muoncore/core/check.h"
#include "muoncore/optim/build.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;
using ::testing::HasSubstr;

OptimizerConfig muon_config() {
  OptimizerConfig config;
  config.optimizer = "muon";
  return config;
}

template <typename Change>
std::string refusal(Change change, OptimizerConfig config = muon_config()) {
  change(config);
  try {
    validate(config, "optim.");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OptimizerConfig, DefaultsAreAccepted) {
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](auto&) {}, {}), "");
  EXPECT_EQ(refusal([](auto& c) { c.optimizer = "adamw"; }, {}), "");
  EXPECT_EQ(refusal([](auto& c) { c.muon_match_adamw_update_rms = true; }), "");
}

TEST(OptimizerConfig, RefusesOtherOptimizers) {
  for (const char* name : {"sgd", "adaptive_muon", "soap", "lion", "dist_muon"})
    EXPECT_THAT(refusal([&](auto& c) { c.optimizer = name; }),
                HasSubstr("optim.optimizer: " + std::string(name) + " is not supported"));
  EXPECT_THAT(refusal([](auto& c) { c.optimizer = "muonn"; }), HasSubstr("did you mean 'muon'?"));
  EXPECT_THAT(refusal([](auto& c) { c.optimizer = "adamm"; }), HasSubstr("did you mean 'adam"));
  EXPECT_THAT(refusal([](auto& c) { c.optimizer = ""; }), HasSubstr("optim.optimizer"));
}

TEST(OptimizerConfig, RefusesContradictions) {
  EXPECT_THAT(refusal([](auto& c) {
                c.muon_match_adamw_update_rms = true;
                c.muon_extra_scale_factor = 0.2;
              }),
              HasSubstr("contradicts optim.muon_extra_scale_factor: 0.2"));
  for (const char* mode : {"unit_rms_norm", "shape_scaling"})
    EXPECT_THAT(refusal([&](auto& c) {
                  c.muon_match_adamw_update_rms = true;
                  c.muon_scale_mode = mode;
                }),
                HasSubstr("optim.muon_scale_mode: spectral only"));
  EXPECT_THAT(refusal([](auto& c) { c.min_lr = 1.0; }), HasSubstr("is above optim.lr"));
  EXPECT_THAT(refusal([](auto& c) { c.adam_min_lr = 1.0; }), HasSubstr("optim.adam_min_lr: 1"));
  EXPECT_THAT(refusal([](auto& c) { c.adam_lr = 1e-4, c.min_lr = 5e-4; }),
              HasSubstr("optim.min_lr: 0.0005 is above optim.adam_lr"));
  EXPECT_THAT(refusal([](auto& c) { c.adam_lr = 0.1; }, {}), HasSubstr("optim.adam_lr"));
  EXPECT_THAT(refusal([](auto& c) { c.muon_match_adamw_update_rms = true; }, {}),
              HasSubstr("needs optim.optimizer: muon"));
  EXPECT_THAT(refusal(
                  [](auto& c) {
                    c.routing_rules = {{".*", "adam"}};
                  },
                  {}),
              HasSubstr("optim.routing_rules"));
}

TEST(OptimizerConfig, RefusesValuesOutOfRange) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (double bad : {-1e-9, nan, inf}) {
    EXPECT_THAT(refusal([&](auto& c) { c.lr = bad; }), HasSubstr("optim.lr"));
    EXPECT_THAT(refusal([&](auto& c) { c.min_lr = bad; }), HasSubstr("optim.min_lr"));
    EXPECT_THAT(refusal([&](auto& c) { c.weight_decay = bad; }), HasSubstr("optim.weight_decay"));
    EXPECT_THAT(refusal([&](auto& c) { c.clip_grad = bad; }), HasSubstr("optim.clip_grad"));
    EXPECT_THAT(refusal([&](auto& c) { c.adam_eps = bad; }), HasSubstr("optim.adam_eps"));
    EXPECT_THAT(refusal([&](auto& c) { c.adam_lr = bad; }), HasSubstr("optim.adam_lr"));
    EXPECT_THAT(refusal([&](auto& c) { c.muon_extra_scale_factor = bad; }),
                HasSubstr("optim.muon_extra_scale_factor"));
  }
  EXPECT_THAT(refusal([](auto& c) { c.adam_eps = 0.0; }), HasSubstr("optim.adam_eps"));
  EXPECT_THAT(refusal([](auto& c) { c.muon_extra_scale_factor = 0.0; }), HasSubstr("above 0"));
  for (double bad : {1.0, -0.1, nan}) {
    EXPECT_THAT(refusal([&](auto& c) { c.betas[0] = bad; }), HasSubstr("optim.betas"));
    EXPECT_THAT(refusal([&](auto& c) { c.betas[1] = bad; }), HasSubstr("optim.betas"));
    EXPECT_THAT(refusal([&](auto& c) { c.muon_momentum = bad; }), HasSubstr("muon_momentum"));
  }
  EXPECT_THAT(refusal([](auto& c) { c.muon_num_ns_steps = 0; }), HasSubstr("muon_num_ns_steps"));
}

TEST(OptimizerConfig, RefusesUnknownWords) {
  EXPECT_THAT(refusal([](auto& c) { c.muon_scale_mode = "spectal"; }),
              HasSubstr("did you mean 'spectral'?"));
  EXPECT_THAT(refusal([](auto& c) { c.muon_coefficient_type = "quintc"; }),
              HasSubstr("did you mean 'quintic'?"));
  EXPECT_THAT(refusal([](auto& c) { c.muon_tp_mode = "block"; }), HasSubstr("optim.muon_tp_mode"));
  EXPECT_THAT(refusal([](auto& c) { c.muon_fp32_matmul_prec = "low"; }),
              HasSubstr("highest, high, medium"));
  EXPECT_THAT(refusal([](auto& c) { c.muon_ns_impl = "fast"; }), HasSubstr("not supported yet"));
  EXPECT_EQ(refusal([](auto& c) { c.muon_scalar_optimizer = "lion"; }), "");
  EXPECT_THAT(refusal([](auto& c) { c.muon_scalar_optimizer = "lin"; }), HasSubstr("'lion'?"));
}

TEST(OptimizerConfig, ResolvedFactor) {
  OptimizerConfig config = muon_config();
  EXPECT_EQ(resolved_extra_scale_factor(config), 1.0);
  config.muon_match_adamw_update_rms = true;
  EXPECT_NEAR(resolved_extra_scale_factor(config), 0.229416, 5e-7);
  config.betas[0] = 0.8;
  EXPECT_NEAR(resolved_extra_scale_factor(config), 1.0 / 3.0, 1e-15);
}

TEST(OptimizerConfig, SchedulerOptions) {
  OptimizerConfig config = muon_config();
  EXPECT_THROW(scheduler_options(config), Error);
  config.total_training_steps = 40;
  config.lr_warmup_steps_ratio = 0.1;
  EXPECT_EQ(scheduler_options(config).lr_warmup_steps, 4);
  EXPECT_EQ(scheduler_options(config).lr_decay_steps, 40);
  EXPECT_EQ(scheduler_options(config).end_wd, 0.01);
  config.lr_decay_steps = 20;
  EXPECT_EQ(scheduler_options(config).lr_warmup_steps, 2);
  config.lr_warmup_steps = 7;
  EXPECT_EQ(scheduler_options(config).lr_warmup_steps, 7);
  config.lr_warmup_steps = 20;
  EXPECT_THROW(scheduler_options(config), Error);
  config.lr_warmup_steps = 0;
  config.lr_warmup_steps_ratio = 1.0;
  EXPECT_THROW(scheduler_options(config), Error);
}

std::string build_refusal(const std::vector<NamedParam>& params,
                          const OptimizerConfig& config = muon_config()) {
  try {
    build_optimizer(params, config);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(BuildOptimizer, RefusesBadParameters) {
  const NamedParam w = named("w", ParamRole::kMatrix, {4, 6});
  const NamedParam b = named("b", ParamRole::kBias, {4});
  EXPECT_EQ(build_refusal({w, b}), "");
  EXPECT_THAT(build_refusal({}), HasSubstr("at least one parameter"));
  EXPECT_THAT(build_refusal({b}), HasSubstr("no parameter of this model is a matrix"));
  EXPECT_THAT(build_refusal({w, w}), HasSubstr("'w' is given twice"));
  NamedParam tied = w;
  tied.spec.name = "tied";
  EXPECT_THAT(build_refusal({w, tied}), HasSubstr("give tied weights once"));
  NamedParam shape = b;
  shape.spec.shape = {5};
  EXPECT_THAT(build_refusal({w, shape}), HasSubstr("shape [4] where its spec says [5]"));
  EXPECT_THAT(build_refusal({named("h", ParamRole::kMatrix, {4, 6}, at::kHalf)}),
              HasSubstr("'h' is fp16"));
  NamedParam view = w;
  view.tensor = w.tensor * 2;
  EXPECT_THAT(build_refusal({view}), HasSubstr("no contiguous leaf"));
  NamedParam blocks = w;
  blocks.spec.blocks.rows = {3, 2};
  EXPECT_THROW(build_optimizer({blocks}, muon_config()), Error);
  OptimizerConfig bad = muon_config();
  bad.muon_num_ns_steps = 0;
  EXPECT_THAT(build_refusal({w}, bad), HasSubstr("muon_num_ns_steps"));
}

}  // namespace
}  // namespace muoncore::optim
