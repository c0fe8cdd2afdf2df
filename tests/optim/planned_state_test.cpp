// What a chain says that it will hold, before its first step, is what it holds after it.
#include <gtest/gtest.h>

#include "muoncore/optim/build.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;

std::vector<NamedParam> model(at::ScalarType dtype) {
  std::vector<NamedParam> params{named("embed", ParamRole::kEmbedding, {20, 12}, dtype),
                                 named("qkv", ParamRole::kMatrix, {32, 12}, dtype),
                                 named("heads", ParamRole::kMatrix, {32, 12}, dtype),
                                 named("tall", ParamRole::kMatrix, {17, 5}, dtype),
                                 named("wide", ParamRole::kMatrix, {3, 24}, dtype),
                                 named("experts", ParamRole::kMatrix, {3, 10, 7}, dtype),
                                 named("norm", ParamRole::kNorm, {12}, dtype)};
  params[1].spec.blocks = {.rows = {8, 4, 4}};
  params[2].spec.blocks = {.rows = {8, 4, 4}, .per_group = true};
  return params;
}

void expect_planned(const OptimizerConfig& config, at::ScalarType dtype, const char* what) {
  SCOPED_TRACE(what);
  const auto params = model(dtype);
  const auto chain = build_optimizer(params, config);
  int64_t state = 0, masters = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    EXPECT_EQ(chain->elements(i), params[i].tensor.numel());
    EXPECT_EQ(chain->planned_state_bytes(i, 0), 0);
    state += chain->planned_state_bytes(i, chain->elements(i));
    masters += chain->planned_master_bytes(i, chain->elements(i));
  }
  set_gradients(params, 0);
  chain->step();
  EXPECT_GT(state, 0);
  EXPECT_EQ(state, chain->state_bytes());
  EXPECT_EQ(masters, chain->master_bytes());
}

OptimizerConfig muon() {
  OptimizerConfig config;
  config.optimizer = "muon";
  return config;
}

TEST(PlannedState, IsWhatEveryVariantHolds) {
  for (auto dtype : {at::kFloat, at::kBFloat16}) {
    expect_planned(OptimizerConfig{}, dtype, "adam");
    expect_planned(muon(), dtype, "muon");
    for (const char* method : {"adamuon", "normuon", "namo"}) {
      OptimizerConfig config = muon();
      config.muon_moment2_method = method;
      expect_planned(config, dtype, method);
    }
    OptimizerConfig config = muon();
    config.muon_hyperball = true;
    config.weight_decay = 0;
    expect_planned(config, dtype, "hyperball");
    config = muon();
    config.muon_match_adamw_update_rms = true;
    config.muon_match_adamw_update_rms_mode = "measured";
    expect_planned(config, dtype, "measured");
    config = muon();
    config.muon_scalar_optimizer = "lion";
    expect_planned(config, dtype, "lion");
    config = muon();
    config.muon_split_qkv = false;
    config.muon_moment2_method = "normuon";
    expect_planned(config, dtype, "normuon of whole matrices");
  }
  OptimizerConfig config = muon();
  config.muon_bf16_params = "stochastic";
  expect_planned(config, at::kBFloat16, "no masters");
}

}  // namespace
}  // namespace muoncore::optim
