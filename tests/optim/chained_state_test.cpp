#include <gmock/gmock.h>

#include "muoncore/core/check.h"
#include "muoncore/optim/build.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using State = std::map<std::string, at::Tensor>;

struct Training {
  std::vector<NamedParam> params;
  std::unique_ptr<ChainedOptimizer> chain;

  explicit Training(at::ScalarType dtype, const std::string& optimizer = "muon") {
    params = {named("embed", ParamRole::kEmbedding, {9, 6}, dtype),
              named("layers.0.w", ParamRole::kMatrix, {8, 6}, dtype),
              named("unused", ParamRole::kMatrix, {4, 6}, dtype),
              named("norm", ParamRole::kNorm, {6}, dtype)};
    OptimizerConfig config;
    config.optimizer = optimizer;
    config.lr = 0.02;
    chain = build_optimizer(params, config);
  }

  void steps(int from, int to) {
    for (int t = from; t < to; ++t) {
      set_gradients(params, t);
      params[2].tensor.mutable_grad().reset();
      chain->step();
    }
  }

  State saved() const {
    State state;
    for (const auto& [key, tensor] : chain->state()) state[key] = tensor.clone();
    return state;
  }
};

TEST(ChainedState, KeysAreNames) {
  Training run(at::kBFloat16);
  run.steps(0, 1);
  std::vector<std::string> keys;
  for (const auto& [key, tensor] : run.chain->state()) keys.push_back(key);
  EXPECT_THAT(keys,
              ::testing::ElementsAre(
                  "optimizer.entries", "optimizer.state.exp_avg.embed",
                  "optimizer.state.exp_avg.norm", "optimizer.state.exp_avg_sq.embed",
                  "optimizer.state.exp_avg_sq.norm", "optimizer.state.fp32_param.embed",
                  "optimizer.state.fp32_param.layers.0.w", "optimizer.state.fp32_param.norm",
                  "optimizer.state.fp32_param.unused", "optimizer.state.momentum_buffer.layers.0.w",
                  "optimizer.state.step.embed", "optimizer.state.step.norm"));
  EXPECT_EQ(run.chain->state().at("optimizer.entries").item<int64_t>(), 11);
}

TEST(ChainedState, ContinuesBitwise) {
  for (auto dtype : {at::kFloat, at::kBFloat16})
    for (const char* optimizer : {"muon", "adam"}) {
      Training whole(dtype, optimizer), resumed(dtype, optimizer);
      whole.steps(0, 3);
      const State state = whole.saved();
      resumed.steps(7, 9);  // other weights and state, to be replaced
      at::NoGradGuard no_grad;
      for (size_t i = 0; i < whole.params.size(); ++i)
        resumed.params[i].tensor.copy_(whole.params[i].tensor);
      resumed.chain->load_state(state);
      whole.steps(3, 6);
      resumed.steps(3, 6);
      for (size_t i = 0; i < whole.params.size(); ++i)
        EXPECT_TRUE(same_bytes(whole.params[i].tensor, resumed.params[i].tensor));
      for (const auto& [key, tensor] : whole.chain->state())
        EXPECT_TRUE(same_bytes(tensor, resumed.chain->state().at(key))) << key;
    }
}

TEST(ChainedState, LoadingWritesBf16ParametersFromTheirMasters) {
  Training whole(at::kBFloat16), other(at::kBFloat16);
  whole.steps(0, 2);
  other.chain->load_state(whole.saved());
  for (size_t i = 0; i < whole.params.size(); ++i)
    EXPECT_TRUE(same_bytes(whole.params[i].tensor, other.params[i].tensor));
}

// What load_state says, after making sure that it changed nothing.
std::string refusal(const State& bad, at::ScalarType dtype = at::kFloat,
                    const std::string& optimizer = "muon") {
  Training run(dtype, optimizer);
  run.steps(5, 6);
  const State before = run.saved();
  std::string message;
  try {
    run.chain->load_state(bad);
  } catch (const Error& error) {
    message = error.what();
  }
  const State after = run.saved();
  EXPECT_EQ(before.size(), after.size());
  for (const auto& [key, tensor] : before) EXPECT_TRUE(same_bytes(tensor, after.at(key))) << key;
  return message;
}

template <typename Change>
State changed(const State& good, Change change) {
  State state = good;
  change(state);
  state["optimizer.entries"] = at::scalar_tensor(static_cast<int64_t>(state.size()) - 1, at::kLong);
  return state;
}

TEST(ChainedState, RefusesUnknownAndMisshapenEntries) {
  Training run(at::kFloat);
  run.steps(0, 2);
  const State good = run.saved();
  const std::string p = "optimizer.state.";
  EXPECT_THAT(refusal(changed(good, [&](State& s) { s.erase(p + "exp_avg.norm"); })),
              HasSubstr("'norm' (adam): AdamW's state has no \"exp_avg\""));
  EXPECT_THAT(refusal(changed(good, [&](State& s) { s[p + "exp_avg.nrm"] = at::zeros({6}); })),
              HasSubstr("'nrm' is no parameter of this model; did you mean 'norm'?"));
  EXPECT_THAT(refusal(changed(good, [&](State& s) { s[p + "exp_avg.norm"] = at::zeros({7}); })),
              HasSubstr("Float [7] where Float [6] is needed"));
  EXPECT_THAT(refusal(changed(good, [&](State& s) { s["model.norm"] = at::zeros({7}); })),
              HasSubstr("'model.norm' is no key"));
  EXPECT_THAT(refusal(changed(good,
                              [&](State& s) {
                                s[p + "momentum_buffer.layers.0.w"] = at::zeros({6, 8});
                              })),
              HasSubstr("layers.0.w"));
  State missing = good;
  missing.erase(p + "exp_avg.norm");
  EXPECT_THAT(refusal(missing), HasSubstr("6 of 7 entries are there"));
  EXPECT_THAT(refusal({}), HasSubstr("'optimizer.entries' is missing"));
  EXPECT_THAT(refusal(good, at::kBFloat16), HasSubstr("needs an fp32 master"));
  EXPECT_THAT(refusal(good, at::kFloat, "adam"), HasSubstr("layers.0.w"));
  Training narrow(at::kBFloat16);
  narrow.steps(0, 1);
  EXPECT_THAT(refusal(narrow.saved()), HasSubstr("has no place for an fp32 master"));
}

}  // namespace
}  // namespace muoncore::optim
