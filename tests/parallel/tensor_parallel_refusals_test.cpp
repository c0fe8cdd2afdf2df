// What the ranks must agree about, what is refused, gradients that are odd, and options of Muon
// under tensor parallelism.
#include <ATen/ops/allclose.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "tests/parallel/tensor_parallel_training.h"
#include "tests/support/error_of.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's
using ::testing::Each;
using ::testing::HasSubstr;

constexpr TpMode kAll[] = {TpMode::kBlockwise, TpMode::kDuplicated, TpMode::kDistributed,
                           TpMode::kLayerSharded};
constexpr TpMode kSameAsOneProcess[] = {TpMode::kDuplicated, TpMode::kDistributed,
                                        TpMode::kLayerSharded};

const std::vector<ParamSpec> kTwo = {matrix("layer.up", {24, 16}, 0),
                                     matrix("layer.down", {16, 24}, 1)};

// The error of one step on each of two ranks; `wrong` makes one of them wrong. Nothing may have
// been touched.
std::vector<std::string> errors_of_step(
    const std::function<void(int64_t rank, TensorParallelMuon& muon,
                             std::vector<at::Tensor>& params, optim::StepArgs& args)>& wrong,
    const optim::MuonOptions& options = options_of(), TpMode mode = TpMode::kDuplicated) {
  std::vector<std::string> errors(2);
  comm::run_ranks(2, [&](comm::Group& tp) {
    std::vector<at::Tensor> params, before;
    for (const ParamSpec& spec : kTwo)
      params.push_back(
          random_tensor(shard_shape(spec, 2), fmt::format("{}/{}", spec.name, tp.rank()), 0.5));
    TensorParallelMuon muon(tp, {.mode = mode}, one_group(params, options), options);
    for (size_t k = 0; k < 2; ++k) {
      muon.set_spec(params[k], shard_spec(kTwo[k], 2));
      params[k].mutable_grad() = random_tensor(params[k].sizes(), "gradient", 0.1);
      before.push_back(params[k].clone());
    }
    optim::StepArgs args;
    wrong(tp.rank(), muon, params, args);
    errors[static_cast<size_t>(tp.rank())] = error_of([&] { muon.step_with(args); });
    if (errors[static_cast<size_t>(tp.rank())] == "no error") return;
    for (size_t k = 0; k < 2; ++k) {
      EXPECT_TRUE(same_bytes(params[k], before[k])) << kTwo[k].name;
      EXPECT_FALSE(momentum_of(muon, params[k]).defined()) << kTwo[k].name;
    }
  });
  return errors;
}

TEST(TensorParallelAgreement, AGradientOnSomeRanksOnly) {
  for (TpMode mode : kAll)
    EXPECT_THAT(errors_of_step(
                    [](int64_t rank, auto&, auto& params, auto&) {
                      if (rank == 1) params[1].mutable_grad() = at::Tensor();
                    },
                    options_of(), mode),
                Each(HasSubstr("layer.down: some ranks of group world have a gradient of it")));
}

TEST(TensorParallelAgreement, ADifferentGradientScale) {
  EXPECT_THAT(
      errors_of_step([](int64_t rank, auto&, auto&, auto& args) {
        if (rank == 1) args.grad_scale = 0.5;
      }),
      Each(HasSubstr("the ranks of group world disagree about the cut parameters of their Muon")));
}

TEST(TensorParallelAgreement, ADifferentLearningRate) {
  EXPECT_THAT(errors_of_step([](int64_t rank, auto& muon, auto&, auto&) {
                if (rank == 1) muon.param_groups()[0].options().set_lr(0.01);
              }),
              Each(HasSubstr("learning rates")));
}

TEST(TensorParallelAgreement, ADifferentSpec) {
  EXPECT_THAT(errors_of_step([](int64_t rank, auto& muon, auto& params, auto&) {
                if (rank == 0) muon.set_spec(params[0], matrix("another", {24, 16}, 0));
              }),
              Each(HasSubstr("disagree about the cut parameters")));
}

TEST(TensorParallelAgreement, AShardOfAnotherMatrix) {
  EXPECT_THAT(errors_of_step([](int64_t, auto& muon, auto& params, auto&) {
                muon.set_spec(params[0], matrix("layer.up", {36, 16}, 0));
              }),
              Each(HasSubstr("layer.up: a shard of shape [12, 16], cut along dimension 0 over 2 "
                             "ranks, is not one of a matrix of shape [36, 16]")));
}

TEST(TensorParallelAgreement, AParameterWithoutGradientAnywhereIsSkipped) {
  Training training{.specs = kTwo, .options = options_of()};
  training.gradient = [](const ParamSpec& spec, int step) {
    if (spec.name == "layer.up") return at::Tensor();
    return random_tensor(spec.shape, fmt::format("{}", step), 0.1);
  };
  const Trained expected = one_process(training);
  for (TpMode mode : kSameAsOneProcess) {
    const Trained got = tensor_parallel(training, 2, {.mode = mode});
    EXPECT_TRUE(same_bytes(got.params[0], training.start(kTwo[0])));
    EXPECT_FALSE(got.momenta[0].defined());
    EXPECT_LE(of_bound(got.params[1], expected.params[1]), 1.0);
  }
}

TEST(TensorParallelOptions, RefusedByNameWhereAMatrixIsCut) {
  struct Case {
    std::function<void(optim::MuonOptions&)> set;
    TpMode mode;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](auto& o) { o.moment2_method("normuon"); }, TpMode::kDuplicated, "moment2_method normuon"},
      {[](auto& o) { o.moment2_method("namo"); }, TpMode::kLayerSharded, "moment2_method namo"},
      {[](auto& o) { o.hyperball(true).extra_scale_factor(1.0); }, TpMode::kDuplicated,
       "hyperball"},
      {[](auto& o) { o.adamw_match("measured"); }, TpMode::kDistributed, "adamw_match measured"},
      {[](auto& o) { o.pre_transform("muoneq_rows"); }, TpMode::kDistributed,
       "pre_transform muoneq_rows"},
      {[](auto& o) { o.post_transform("frobenius"); }, TpMode::kDistributed,
       "post_transform frobenius"},
  };
  for (const Case& c : cases) {
    optim::MuonOptions options = options_of();
    c.set(options);
    EXPECT_THAT(errors_of_step([](int64_t, auto&, auto&, auto&) {}, options, c.mode),
                Each(::testing::AllOf(HasSubstr("layer.up: cut over 2 tensor-parallel ranks, but "),
                                      HasSubstr(c.message))));
    // The shard is the matrix, and nothing is cut:
    EXPECT_THAT(errors_of_step([](int64_t, auto&, auto&, auto&) {}, options, TpMode::kBlockwise),
                Each("no error"));
  }
}

// What is done to whole matrices, or element by element, is the same in every layout.
TEST(TensorParallelOptions, TheOthersEqualOneProcess) {
  using Set = std::function<void(optim::MuonOptions&)>;
  const std::vector<std::pair<Set, bool>> cases = {
      // bool: also under distributed
      {[](auto& o) { o.moment2_method("adamuon"); }, true},
      {[](auto& o) { o.weight_decay_method("cautious"); }, true},
      {[](auto& o) { o.weight_decay_method("l2"); }, true},
      {[](auto& o) { o.momentum_kind("classical").nesterov(true); }, true},
      {[](auto& o) { o.pre_transform("muoneq_both"); }, false},
      {[](auto& o) { o.post_transform("muon_plus_rows_columns"); }, false},
      {[](auto& o) { o.post_transform("frobenius"); }, false},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    Training training{.specs = transformer_layer(), .options = options_of()};
    cases[i].first(training.options);
    const Trained expected = one_process(training);
    for (TpMode mode : kSameAsOneProcess) {
      if (mode == TpMode::kDistributed && !cases[i].second) continue;
      const Trained got = tensor_parallel(training, 2, {.mode = mode});
      // adamuon divides by the size of an element: rounding of a small one shows.
      const double limit = i == 0 ? 50.0 : 1.0;
      for (size_t k = 0; k < training.specs.size(); ++k)
        EXPECT_LE(of_bound(got.params[k], expected.params[k]), limit)
            << "case " << i << ", " << to_string(mode) << ", " << training.specs[k].name;
    }
  }
}

TEST(TensorParallelOptions, EveryCoefficientSetAndEps) {
  using Set = std::function<void(optim::MuonOptions&)>;
  const std::vector<Set> cases = {
      [](auto& o) { o.coefficient_type("simple"); },
      [](auto& o) { o.coefficient_type("polar_express").num_ns_steps(8); },
      [](auto& o) { o.coefficient_type("cans"); },
      [](auto& o) { o.coefficient_type("aol").num_ns_steps(4); },
      [](auto& o) { o.coefficient_type("deepseekv4").num_ns_steps(10); },
      [](auto& o) { o.coefficient_type("cubic5"); },
      [](auto& o) {
        o.coefficient_type("custom").custom_coefficients({2, -1.5, 0.5});
      },
      [](auto& o) { o.ns_eps(1e-7); },
      [](auto& o) { o.ns_eps(10.0); },  // far above every norm: the update is small
      [](auto& o) { o.coefficient_type("polar_express").upstream_exact(true); },
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    Training training{
        .specs = {matrix("a", {24, 16}, 0), matrix("b", {16, 24}, 0), matrix("c", {2, 24, 16}, 2)},
        .options = options_of(),
        .steps = 2};
    cases[i](training.options);
    const Trained expected = one_process(training);
    for (TpMode mode : kSameAsOneProcess) {
      const Trained got = tensor_parallel(training, 4, {.mode = mode});
      for (size_t k = 0; k < training.specs.size(); ++k)
        EXPECT_LE(of_bound(got.params[k], expected.params[k]), 1.0)
            << "case " << i << ", " << to_string(mode) << ", " << training.specs[k].name;
    }
  }
}

// The size of a gradient does not matter; zero stays zero; one huge element does not drown a slice
// of its own.
TEST(TensorParallelMuon, GradientsOfAnySize) {
  for (double scale : {0.0, 1e-38, 1e-30, 1e-9, 1e30}) {
    Training training{
        .specs = {matrix("a", {24, 16}, 0), matrix("b", {16, 24}, 0), matrix("c", {2, 24, 16}, 2)},
        .options = options_of(),
        .steps = 1};
    training.gradient = [scale](const ParamSpec& spec, int) {
      at::Tensor g = random_tensor(spec.shape, spec.name, scale);
      if (g.dim() == 3) g.select(0, 1).mul_(1e-3);
      return g;
    };
    const Trained expected = one_process(training);
    for (TpMode mode : kSameAsOneProcess) {
      const Trained got = tensor_parallel(training, 2, {.mode = mode});
      for (size_t k = 0; k < training.specs.size(); ++k) {
        EXPECT_LE(of_bound(got.params[k], expected.params[k]), 1.0)
            << scale << ", " << to_string(mode) << ", " << training.specs[k].name;
        const at::Tensor decayed = training.start(training.specs[k]) * (1 - 0.02 * 0.1);
        const double moved = max_difference(got.params[k], decayed);
        if (scale == 0.0) {
          EXPECT_LE(moved, 2.5e-7);
        } else {
          EXPECT_GT(moved, 1e-3) << scale;
        }
      }
    }
  }
}

// A NaN reaches its own matrix and no other; the chain of optimizers skips such steps before.
TEST(TensorParallelMuon, NaNStaysInItsMatrix) {
  Training training{.specs = kTwo, .options = options_of(), .steps = 1};
  training.gradient = [](const ParamSpec& spec, int) {
    at::Tensor g = random_tensor(spec.shape, spec.name, 0.1);
    if (spec.name == "layer.up") g[23][0] = NAN;  // on the last rank
    return g;
  };
  for (TpMode mode : kSameAsOneProcess) {
    const Trained got = tensor_parallel(training, 2, {.mode = mode});
    EXPECT_TRUE(got.params[0].isnan().all().item<bool>()) << to_string(mode);
    EXPECT_TRUE(at::isfinite(got.params[1]).all().item<bool>()) << to_string(mode);
  }
}

}  // namespace
}  // namespace muoncore::parallel
