#include "muoncore/optim/adamw.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/serialize.h>

#include <sstream>

#include "muoncore/core/check.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;
using torch::optim::OptimizerParamGroup;

AdamWOptions options() { return AdamWOptions(0.01).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1); }

ReferenceAdamW reference(const at::Tensor& param) {
  ReferenceAdamW r(param);
  r.lr = 0.01, r.beta1 = 0.9, r.beta2 = 0.95, r.weight_decay = 0.1;
  return r;
}

TEST(AdamW, FollowsTheFormulasInFp64AndFp32) {
  for (auto dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor p = leaf({7, 13}, "p", 1.0, dtype);
    ReferenceAdamW expected = reference(p);
    AdamW adam({p}, options());
    for (int t = 0; t < 6; ++t) {
      p.mutable_grad() = random_tensor({7, 13}, fmt::format("g{}", t), 1.0, dtype);
      adam.step();
      expected.step(p.grad());
      const double tolerance = dtype == at::kDouble ? 1e-13 : 1e-6;
      EXPECT_LT(max_difference(p, expected.p), tolerance);
      EXPECT_NEAR(adam.last_stats()[0].update_rms(), expected.update_rms, tolerance);
      EXPECT_EQ(adam.last_stats()[0].elements, 91);
      EXPECT_EQ(adam.last_stats()[0].matrices, 0);
    }
    EXPECT_EQ(adam.state_bytes(), 2 * 91 * static_cast<int64_t>(p.element_size()));
  }
}

TEST(AdamW, AgreesWithTorchsOwn) {
  const at::Tensor ours = leaf({33, 5}, "p"), theirs = leaf({33, 5}, "p");
  AdamW adam({ours}, options());
  torch::optim::AdamW torchs(
      std::vector<at::Tensor>{theirs},
      torch::optim::AdamWOptions(0.01).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.1));
  for (int t = 0; t < 5; ++t) {
    ours.mutable_grad() = random_tensor({33, 5}, fmt::format("g{}", t));
    theirs.mutable_grad() = ours.grad().clone();
    adam.step();
    torchs.step();
    EXPECT_LT(max_difference(ours, theirs), 2e-7);
  }
}

TEST(AdamW, WithoutDecouplingItIsTorchsAdam) {
  const at::Tensor ours = leaf({33, 5}, "p"), theirs = leaf({33, 5}, "p");
  AdamW adam({ours}, options().weight_decay(0.3).decoupled_weight_decay(false));
  torch::optim::Adam torchs(
      std::vector<at::Tensor>{theirs},
      torch::optim::AdamOptions(0.01).betas({0.9, 0.95}).eps(1e-8).weight_decay(0.3));
  ReferenceAdamW decoupled = reference(ours);
  decoupled.weight_decay = 0.3;
  for (int t = 0; t < 5; ++t) {
    const at::Tensor grad = random_tensor({33, 5}, fmt::format("g{}", t), 2.0);
    const at::Tensor kept = grad.clone();
    ours.mutable_grad() = grad;
    theirs.mutable_grad() = grad * 0.5;
    adam.step_with({.grad_scale = 0.5});
    torchs.step();
    decoupled.step(grad * 0.5);
    EXPECT_LT(max_difference(ours, theirs), 4e-7);
    EXPECT_TRUE(same_bytes(grad, kept));
  }
  EXPECT_GT(max_difference(ours, decoupled.p), 1e-3);  // the two decays are not the same
  ours.mutable_grad() = random_tensor({33, 5}, "unscaled");
  const at::Tensor kept = ours.grad().clone();
  adam.step();
  EXPECT_TRUE(same_bytes(ours.grad(), kept));
}

TEST(AdamW, AppliesTheScaleWithoutWritingTheGradient) {
  // Long enough for two chunks of the scaled copy, and odd.
  const int64_t n = (int64_t{1} << 20) + 12345;
  const at::Tensor scaled = leaf({n}, "p"), plain = leaf({n}, "p");
  const at::Tensor grad = random_tensor({n}, "g", 4.0), kept = grad.clone();
  AdamW a({scaled}, options()), b({plain}, options());
  for (int t = 0; t < 2; ++t) {
    scaled.mutable_grad() = grad;
    plain.mutable_grad() = grad * 0.125;
    a.step_with({.grad_scale = 0.125});
    b.step();
  }
  EXPECT_TRUE(same_bytes(grad, kept));
  EXPECT_TRUE(same_bytes(scaled, plain));
  EXPECT_EQ(a.last_stats()[0].update_square_sum, b.last_stats()[0].update_square_sum);
}

TEST(AdamW, TakesAWiderOrNarrowerGradientAndAnyStrides) {
  const at::Tensor p = leaf({6, 4}, "p"), q = leaf({6, 4}, "p");
  AdamW a({p}, options()), b({q}, options());
  const at::Tensor narrow = random_tensor({4, 6}, "g", 1.0, at::kBFloat16).t();
  p.mutable_grad() = narrow;
  q.mutable_grad() = narrow.to(at::kFloat).contiguous();
  a.step();
  b.step();
  EXPECT_TRUE(same_bytes(p, q));
}

TEST(AdamW, SameBytesOnOneAndTwoThreads) {
  const int before = at::get_num_threads();
  std::vector<at::Tensor> weights;
  std::vector<double> sums;
  for (int threads : {1, 2}) {
    at::set_num_threads(threads);
    const at::Tensor p = leaf({317, 211}, "p");
    AdamW adam({p}, options());
    for (int t = 0; t < 3; ++t) {
      p.mutable_grad() = random_tensor({317, 211}, fmt::format("g{}", t));
      adam.step_with({.grad_scale = 0.7});
    }
    weights.push_back(p);
    sums.push_back(adam.last_stats()[0].update_square_sum);
  }
  at::set_num_threads(before);
  EXPECT_TRUE(same_bytes(weights[0], weights[1]));
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(AdamW, LeavesParametersWithoutGradientAlone) {
  const at::Tensor a = leaf({3}, "a"), b = leaf({3}, "b"), kept = b.detach().clone();
  AdamW adam({a, b}, options());
  a.mutable_grad() = random_tensor({3}, "g");
  adam.step();
  EXPECT_TRUE(same_bytes(b, kept));
  EXPECT_EQ(adam.state_bytes(), 2 * 3 * 4);
  EXPECT_TRUE(adam.param_state(b).empty());
  EXPECT_EQ(adam.param_state(a).at("step").item<double>(), 1.0);
}

TEST(AdamW, ZeroTinyHugeAndEmptyGradients) {
  const at::Tensor zero = leaf({4}, "z"), tiny = leaf({4}, "t"), huge = leaf({4}, "h"),
                   empty = leaf({0, 3}, "e");
  const at::Tensor zero_before = zero.detach().clone(), huge_before = huge.detach().clone();
  AdamW adam({zero, tiny, huge, empty}, AdamWOptions(0.1).eps(1e-8).weight_decay(0.0));
  zero.mutable_grad() = at::zeros({4});
  tiny.mutable_grad() = at::full({4}, 1e-30);
  huge.mutable_grad() = at::full({4}, 1e18);
  empty.mutable_grad() = at::zeros({0, 3});
  adam.step();
  EXPECT_TRUE(same_bytes(zero, zero_before));
  EXPECT_LT(max_difference(huge, huge_before - 0.1), 1e-6);
  EXPECT_TRUE(tiny.isfinite().all().item<bool>());
  EXPECT_EQ(adam.last_stats()[0].elements, 12);
}

TEST(AdamW, GroupsKeepTheirOwnOptions) {
  const at::Tensor a = leaf({2}, "a"), b = leaf({2}, "b"), c = leaf({2}, "c");
  std::vector<OptimizerParamGroup> groups;
  // 1e-3 is the constructor's default: a group that asks for it must get it.
  groups.emplace_back(std::vector<at::Tensor>{a},
                      std::make_unique<AdamWOptions>(AdamWOptions(1e-3).weight_decay(0.01)));
  groups.emplace_back(std::vector<at::Tensor>{b});
  AdamW adam(groups, AdamWOptions(0.5).weight_decay(0.25));
  adam.add_param_group(OptimizerParamGroup({c}, std::make_unique<AdamWOptions>(0.125)));
  const std::vector<double> lrs{1e-3, 0.5, 0.125}, decays{0.01, 0.25, 0.01};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(adam.param_groups()[i].options().get_lr(), lrs[i]) << i;
    EXPECT_EQ(adam.weight_decay(i), decays[i]) << i;
  }
}

TEST(AdamW, ClosureRunsWithGradientsOn) {
  const at::Tensor p = leaf({2}, "p");
  AdamW adam({p}, options());
  at::NoGradGuard no_grad;
  const at::Tensor loss = adam.step([&] {
    const at::Tensor value = (p * p).sum();
    value.backward();
    return value;
  });
  EXPECT_TRUE(loss.defined());
  EXPECT_TRUE(p.grad().defined());
  EXPECT_EQ(adam.param_state(p).at("step").item<double>(), 1.0);
}

TEST(AdamW, TorchArchiveContinuesBitwise) {
  const at::Tensor p = leaf({5, 3}, "p");
  AdamW adam({p}, options());
  auto run = [](AdamW& optimizer, const at::Tensor& param, int from, int to) {
    for (int t = from; t < to; ++t) {
      param.mutable_grad() = random_tensor({5, 3}, fmt::format("g{}", t));
      optimizer.step();
    }
  };
  run(adam, p, 0, 3);
  std::stringstream stream;
  torch::save(adam, stream);
  const at::Tensor q = p.detach().clone().set_requires_grad(true);
  AdamW other({q}, AdamWOptions(7.0));
  torch::load(other, stream);
  run(adam, p, 3, 6);
  run(other, q, 3, 6);
  EXPECT_TRUE(same_bytes(p, q));
}

TEST(AdamW, RefusesWhatItCannotDo) {
  EXPECT_THROW(AdamW({leaf({2}, "p", 1.0, at::kBFloat16)}, options()), Error);
  EXPECT_THROW(AdamW({leaf({2}, "p")}, options().betas({1.0, 0.9})), Error);
  EXPECT_THROW(AdamW({leaf({2}, "p")}, options().betas({0.9, -0.1})), Error);
  EXPECT_THROW(AdamW({leaf({2}, "p")}, options().weight_decay(-1)), Error);
  EXPECT_THROW(AdamW({leaf({2}, "p")}, options().eps(0.0)), Error);
  EXPECT_THROW(AdamW({random_tensor({2, 3}, "p").t().set_requires_grad(true)}, options()), Error);
  const at::Tensor p = leaf({2}, "p");
  AdamW adam({p}, options());
  p.mutable_grad() = random_tensor({2}, "g");
  adam.step();
  const ParamState good = adam.param_state(p);
  auto changed = [&](const char* name, const at::Tensor& tensor) {
    ParamState state = good;
    state[name] = tensor;
    return state;
  };
  EXPECT_THROW(adam.set_param_state(p, changed("exp_avg", at::zeros({3}))), Error);
  EXPECT_THROW(adam.set_param_state(p, changed("exp_avg", at::zeros({2}, at::kDouble))), Error);
  EXPECT_THROW(adam.set_param_state(p, changed("momentum_buffer", at::zeros({2}))), Error);
  EXPECT_THROW(adam.set_param_state(p, {{"step", at::zeros({})}}), Error);
  EXPECT_TRUE(adam.param_state(p).at("exp_avg").is_same(good.at("exp_avg")));
  EXPECT_THROW(adam.set_param_state(p, {}), Error);
  adam.drop_param_state(p);
  EXPECT_TRUE(adam.param_state(p).empty());
}

}  // namespace
}  // namespace muoncore::optim
