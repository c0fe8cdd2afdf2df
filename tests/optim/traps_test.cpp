// Faults found in other people's Muon, each with the smallest input that shows it
// (reference/muons.md sections 4.4 and 7, mcore.md section 7). docs/parity.md has the table.
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "muoncore/core/check.h"
#include "muoncore/muon/reference.h"
#include "muoncore/optim/build.h"
#include "muoncore/optim/muon.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;
using torch::optim::OptimizerParamGroup;

MuonOptions exact(double lr = 0.1) {
  return MuonOptions(lr).fp32_matmul_prec("highest").weight_decay(0.0);
}

// What one step moved: before - after.
at::Tensor moved(Muon& muon, const at::Tensor& param, const at::Tensor& grad) {
  const at::Tensor before = param.detach().clone();
  param.mutable_grad() = grad;
  muon.step();
  return (before - param.detach()).to(at::kDouble);
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

at::Tensor direction_of(const at::Tensor& x) { return muon::reference::newton_schulz(x, {}); }

// From the zero weights, so that nothing is lost to rounding in the sum.
TEST(MuonTrap, EveryDecadeOfTheGradientGivesTheSameStep) {
  for (const char* precision : {"highest", "medium"})
    for (int decade = -30; decade <= 30; ++decade) {
      const at::Tensor p = at::zeros({6, 10}).requires_grad_();
      Muon muon(std::vector<at::Tensor>{p}, exact().fp32_matmul_prec(precision));
      const at::Tensor g = random_tensor({6, 10}, "g", std::pow(10.0, decade));
      const at::Tensor step = moved(muon, p, g);
      const at::Tensor due = direction_of(random_tensor({6, 10}, "g")) * (0.1 * std::sqrt(10.0));
      EXPECT_LE(relative_error(step, due), precision == std::string("medium") ? 5e-2 : 1e-4)
          << precision << " 1e" << decade;
    }
}

// Keller Jordan's Muon #4: without Nesterov the raw gradient was orthogonalized.
TEST(MuonTrap, WithoutNesterovTheMomentumIsUsed) {
  const at::Tensor p = leaf({4, 8}, "p");
  Muon muon(std::vector<at::Tensor>{p}, exact());
  const at::Tensor a = random_tensor({4, 8}, "a"), b = random_tensor({4, 8}, "b");
  moved(muon, p, a);
  const at::Tensor second = moved(muon, p, b);
  const double scale = 0.1 * std::sqrt(8.0);
  EXPECT_LE(relative_error(second, direction_of(a * 0.95 + b) * scale), 1e-4);
  EXPECT_GT(relative_error(second, direction_of(b) * scale), 0.5);
}

// torch.optim.Muon in bf16 without Nesterov: `.bfloat16()` of the buffer is the buffer, and the
// norm is divided out of it in place.
TEST(MuonTrap, Bf16WithoutNesterovKeepsItsMomentum) {
  const at::Tensor p = leaf({8, 8}, "p", 1.0, at::kBFloat16);
  Muon muon(std::vector<at::Tensor>{p}, MuonOptions(0.1));  // medium
  at::Tensor due = at::zeros({8, 8}, at::kDouble);
  for (int t = 0; t < 5; ++t) {
    const at::Tensor g = random_tensor({8, 8}, fmt::format("g{}", t), 100.0, at::kBFloat16);
    moved(muon, p, g);
    due = due * 0.95 + g.to(at::kDouble) * 0.05;
  }
  EXPECT_LE(relative_error(muon.param_state(p).at("momentum_buffer"), due), 1e-6);
}

// Keller Jordan's form writes lerp(g, M) into the gradient: a second step on it goes elsewhere.
TEST(MuonTrap, ASecondStepOnTheSameGradientSeesTheSameGradient) {
  const at::Tensor p = leaf({4, 6}, "p"), g = random_tensor({4, 6}, "g"), kept = g.clone();
  Muon muon(std::vector<at::Tensor>{p}, exact().nesterov(true).weight_decay(0.1));
  const at::Tensor first = moved(muon, p, g), weights = p.detach().clone();
  const at::Tensor second = moved(muon, p, g);
  EXPECT_TRUE(same_bytes(g, kept));
  const at::Tensor decay = weights.to(at::kDouble) * (0.1 * 0.1);
  EXPECT_LE(relative_error(second - decay, direction_of(g) * (0.1 * std::sqrt(6.0))), 1e-4);
}

// DeepSpeed #8441: Newton-Schulz never ran, and training went on as plain descent. Its own test
// saw only that weights changed.
TEST(MuonTrap, TheUpdateIsNotPlainDescent) {
  const at::Tensor p = leaf({6, 6}, "p"), g = random_tensor({6, 6}, "g");
  Muon muon(std::vector<at::Tensor>{p}, exact());
  const at::Tensor step = moved(muon, p, g);
  const at::Tensor descent = g.to(at::kDouble) * (step.norm() / g.norm());
  EXPECT_GT(relative_error(step, descent), 0.3);
  EXPECT_EQ(muon.last_stats()[0].matrices, 1);
}

// DeepSpeed #7776: the clip coefficient was applied to the orthogonalized update.
TEST(MuonTrap, ClippingDoesNotShrinkTheUpdate) {
  for (double clip : {1.0, 1e-3, 1e-12}) {
    const at::Tensor p = at::zeros({6, 10}).requires_grad_();
    Muon muon(std::vector<at::Tensor>{p}, exact().extra_scale_factor(0.2));
    p.mutable_grad() = random_tensor({6, 10}, "g");
    muon.step_with({.grad_scale = clip});
    EXPECT_NEAR(muon.last_stats()[0].update_rms(), 0.2, 0.03) << clip;
  }
}

// Megatron #5394: one huge gradient, a tiny clip coefficient for all, and momenta below the eps of
// the norm: every other layer stood still.
TEST(MuonTrap, AHugeGradientOfOneLayerDoesNotFreezeTheOthers) {
  const std::vector<NamedParam> params{named("a", ParamRole::kMatrix, {6, 10}),
                                       named("b", ParamRole::kMatrix, {6, 10})};
  OptimizerConfig config;
  config.optimizer = "muon";
  config.lr = 0.1;
  config.weight_decay = 0.0;
  config.muon_fp32_matmul_prec = "highest";
  const auto chain = build_optimizer(params, config);
  const at::Tensor before = params[1].tensor.detach().clone();
  params[0].tensor.mutable_grad() = random_tensor({6, 10}, "huge", 1e11);
  params[1].tensor.mutable_grad() = random_tensor({6, 10}, "small", 1e-3);
  EXPECT_LT(chain->step().clip_coefficient, 1e-11);
  const at::Tensor due = direction_of(random_tensor({6, 10}, "small")) * (0.1 * std::sqrt(10.0));
  EXPECT_LE(relative_error(before - params[1].tensor.detach(), due), 1e-4);
}

// DeepSpeed #8443, #8600: orthogonalized once per micro-batch, relative difference 0.13.
TEST(MuonTrap, FourAccumulatedMicroBatchesAreOneStep) {
  const at::Tensor x = random_tensor({16, 10}, "x"), y = random_tensor({16, 6}, "y");
  std::vector<at::Tensor> results;
  for (int64_t pieces : {1, 4}) {
    const at::Tensor w = leaf({6, 10}, "w");
    Muon muon(std::vector<at::Tensor>{w}, exact());
    for (int step = 0; step < 3; ++step) {
      w.mutable_grad().reset();
      for (int64_t k = 0; k < pieces; ++k) {
        const int64_t rows = 16 / pieces;
        const at::Tensor out = x.narrow(0, k * rows, rows).matmul(w.t());
        ((out - y.narrow(0, k * rows, rows)).square().sum() / 16).backward();
      }
      muon.step();
      EXPECT_EQ(muon.last_stats()[0].matrices, 1);
    }
    results.push_back(w.detach());
  }
  EXPECT_LE(relative_error(results[1], results[0]), 1e-4);
}

// dion #24: 0 / 0 in the second moments of a parameter whose gradient is zero.
TEST(MuonTrap, SecondMomentsOfZeroGradientsAreFinite) {
  for (const char* method : {"adamuon", "normuon", "namo"}) {
    const at::Tensor p = leaf({4, 6}, "p"), before = p.detach().clone();
    Muon muon(std::vector<at::Tensor>{p}, exact().moment2_method(method));
    EXPECT_EQ(moved(muon, p, at::zeros({4, 6})).norm().item<double>(), 0.0) << method;
    EXPECT_TRUE(same_bytes(p.detach(), before)) << method;
    moved(muon, p, random_tensor({4, 6}, "g"));
    EXPECT_TRUE(p.isfinite().all().item<bool>()) << method;
    EXPECT_FALSE(same_bytes(p.detach(), before)) << method;
  }
}

// Emerging-Optimizers #186 and surogate: the rows were normalized and the norm not restored, so the
// update's RMS went from 1 / sqrt(max side) to 1.
TEST(MuonTrap, NormuonKeepsTheNormOfTheUpdate) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{6, 10}, {10, 6}}) {
    std::vector<double> norms;
    for (const char* method : {"none", "normuon"}) {
      const at::Tensor p = at::zeros(shape).requires_grad_();
      Muon muon(std::vector<at::Tensor>{p}, exact().moment2_method(method));
      for (int t = 0; t < 3; ++t) {
        const at::Tensor step = moved(muon, p, random_tensor(shape, fmt::format("g{}", t)));
        norms.push_back(step.norm().item<double>());
      }
    }
    for (int t = 0; t < 3; ++t) EXPECT_NEAR(norms[3 + t], norms[t], 1e-4 * norms[t]) << t;
  }
}

// surogate wrote the new mean into the average (beta2 without effect); Emerging-Optimizers keeps it
// in the parameter's bf16, where steps of 1 - beta2 are lost to rounding.
TEST(MuonTrap, SecondMomentsAreAveragesInFp32) {
  const double beta2 = 0.95;
  const at::Tensor p = leaf({4, 6}, "p", 1.0, at::kBFloat16);
  Muon muon(std::vector<at::Tensor>{p},
            exact(1e-3).momentum(0.0).moment2_method("adamuon").beta2(beta2));
  at::Tensor due = at::zeros({24}, at::kDouble);
  for (int t = 0; t < 60; ++t) {
    const at::Tensor g = random_tensor({4, 6}, t % 2 ? "odd" : "even");
    moved(muon, p, g);
    due = due * beta2 + direction_of(g).square().view({24}) * (1 - beta2);
  }
  const at::Tensor held = muon.param_state(p).at("second_moment");
  EXPECT_EQ(held.scalar_type(), at::kFloat);
  EXPECT_LE(relative_error(held, due), 1e-4);
}

// dion's flatten=True stacked equal kernels and orthogonalized across them.
TEST(MuonTrap, EqualKernelsDoNotMix) {
  ParamSpec spec{.name = "conv", .role = ParamRole::kMatrix, .shape = {4, 2, 3, 3}, .blocks = {}};
  spec.flatten = true;
  std::vector<at::Tensor> together, apart;
  for (int k = 0; k < 2; ++k) {
    together.push_back(leaf(spec.shape, fmt::format("w{}", k)));
    apart.push_back(leaf(spec.shape, fmt::format("w{}", k)));
  }
  Muon both(std::vector<OptimizerParamGroup>{}, MuonOptions(0.1));
  both.add_param_group({together}, {spec, spec});
  for (int k = 0; k < 2; ++k)
    together[k].mutable_grad() = random_tensor(spec.shape, fmt::format("g{}", k));
  both.step();
  for (int k = 0; k < 2; ++k) {
    Muon one(std::vector<OptimizerParamGroup>{}, MuonOptions(0.1));
    one.add_param_group({std::vector<at::Tensor>{apart[k]}}, {spec});
    moved(one, apart[k], together[k].grad());
    EXPECT_LT(max_difference(together[k], apart[k]), 5e-3) << k;  // bf16, in a batch or alone
  }
}

// An expert without tokens has a gradient of zeros: its momentum fades, and its direction is
// applied at full size (no scale can hide in a direction) until the momentum is zero. As upstream.
TEST(MuonTrap, AnExpertWithoutTokensGoesOnInItsLastDirection) {
  const at::Tensor p = at::zeros({2, 4, 6}).requires_grad_();
  Muon muon(std::vector<at::Tensor>{p}, exact());
  at::Tensor g = random_tensor({2, 4, 6}, "g");
  const at::Tensor first = moved(muon, p, g);
  g = g.clone();
  g.select(0, 1).zero_();
  for (int t = 0; t < 40; ++t) moved(muon, p, g);
  const at::Tensor last = moved(muon, p, g);
  EXPECT_LE(relative_error(last.select(0, 1), first.select(0, 1)), 1e-4);
  const at::Tensor momentum = muon.param_state(p).at("momentum_buffer").select(0, 1);
  EXPECT_LE(relative_error(
                momentum, random_tensor({2, 4, 6}, "g").select(0, 1) * (0.05 * std::pow(0.95, 41))),
            1e-5);
}

TEST(MuonTrap, EmptyMatricesStepAndCountNothing) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{0, 5}, {5, 0}}) {
    const at::Tensor p = at::zeros(shape).requires_grad_(), q = leaf({4, 6}, "q");
    Muon muon(std::vector<at::Tensor>{p, q}, exact());
    p.mutable_grad() = at::zeros(shape);
    const at::Tensor step = moved(muon, q, random_tensor({4, 6}, "g"));
    EXPECT_LE(relative_error(step, direction_of(random_tensor({4, 6}, "g")) * 0.1 * std::sqrt(6.0)),
              1e-4);
    EXPECT_EQ(muon.state_bytes(), 4 * 24);
  }
}

// A NaN must not be hidden (zero directions look like convergence), must not reach another matrix,
// and must not turn a step of the chain into half a step.
TEST(MuonTrap, ANanStaysWhereItIs) {
  const at::Tensor p = leaf({3, 4, 6}, "p"), q = leaf({4, 6}, "q");
  Muon muon(std::vector<at::Tensor>{p, q}, MuonOptions(0.1));
  at::Tensor g = random_tensor({3, 4, 6}, "g");
  g[1][2][3] = NAN;
  q.mutable_grad() = random_tensor({4, 6}, "h");
  moved(muon, p, g);
  EXPECT_TRUE(p.select(0, 1).isnan().all().item<bool>());
  for (int64_t i : {0, 2}) EXPECT_TRUE(p.select(0, i).isfinite().all().item<bool>()) << i;
  EXPECT_TRUE(q.isfinite().all().item<bool>());
}

// A transposed view as parameter, a strided one, a gradient of other strides: kernels that take the
// pointer see another matrix (TransformerEngine #2706).
TEST(MuonTrap, StridesOfParameterAndGradientDoNotMatter) {
  const at::Tensor g = random_tensor({6, 10}, "g");
  const at::Tensor due = direction_of(g) * (0.1 * std::sqrt(10.0));
  const at::Tensor transposed = random_tensor({10, 6}, "p").t().detach().requires_grad_();
  const at::Tensor strided =
      random_tensor({12, 20}, "p").slice(0, 0, 12, 2).slice(1, 0, 20, 2).detach().requires_grad_();
  const at::Tensor plain = leaf({6, 10}, "p");
  for (const at::Tensor& p : {transposed, strided, plain})
    for (const at::Tensor& grad : {g, g.t().contiguous().t()}) {
      Muon muon(std::vector<at::Tensor>{p}, exact());
      EXPECT_LE(relative_error(moved(muon, p, grad), due), 1e-4);
    }
}

// A weight that two modules share would be stepped twice.
TEST(MuonTrap, AParameterGivenTwiceIsRefused) {
  const at::Tensor p = leaf({4, 6}, "p");
  EXPECT_THROW(Muon(std::vector<at::Tensor>{p, p}), Error);
  Muon muon(std::vector<at::Tensor>{p});
  EXPECT_THROW(muon.add_param_group({std::vector<at::Tensor>{p}}), Error);
  EXPECT_EQ(muon.param_groups().size(), 1u);
}

// The closure sees gradients switched on even where the caller had switched them off, runs once,
// and its loss comes back.
TEST(MuonTrap, AClosureRunsOnceAndItsLossComesBack) {
  const at::Tensor p = leaf({4, 6}, "p");
  Muon muon(std::vector<at::Tensor>{p}, exact());
  const at::NoGradGuard no_grad;
  int runs = 0;
  const double before = p.square().sum().item<double>();
  const at::Tensor loss = muon.step([&] {
    ++runs;
    at::Tensor value = p.square().sum();
    value.backward();
    return value;
  });
  EXPECT_EQ(runs, 1);
  EXPECT_NEAR(loss.item<double>(), before, 1e-6);
  EXPECT_LT(p.square().sum().item<double>(), before);
  EXPECT_FALSE(at::GradMode::is_enabled());
}

}  // namespace
}  // namespace muoncore::optim
