#include "muoncore/optim/grad_norm.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>

#include "muoncore/core/check.h"
#include "muoncore/optim/chunked_sum.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<at::Tensor> some_gradients() {
  return {random_tensor({150, 230}, "a"),
          random_tensor({7}, "b"),
          random_tensor({40, 30}, "c", 2.0).t(),
          random_tensor({11, 3}, "d", 1.0, at::kBFloat16),
          random_tensor({5}, "e", 1.0, at::kDouble),
          at::zeros({0})};
}

TEST(GradNorm, EqualsFp64OverAllTensors) {
  for (double p : {1.0, 2.0, 3.0, 0.5, kInf}) {
    double sum = 0.0, top = 0.0;
    for (const auto& grad : some_gradients()) {
      if (grad.numel() == 0) continue;
      const at::Tensor magnitude = grad.to(at::kDouble).abs();
      sum += magnitude.pow(p).sum().item<double>();
      top = std::max(top, magnitude.max().item<double>());
    }
    const double expected = std::isinf(p) ? top : std::pow(sum, 1.0 / p);
    const GradNorm norm = grad_norm(some_gradients(), p);
    EXPECT_NEAR(norm.norm, expected, 1e-12 * expected) << p;
    EXPECT_TRUE(norm.finite);
  }
}

TEST(GradNorm, SameBytesOnOneAndTwoThreads) {
  const int before = at::get_num_threads();
  const std::vector<at::Tensor> grads{random_tensor({1000, 317}, "a"), random_tensor({99}, "b")};
  at::set_num_threads(1);
  const double one = grad_norm(grads).norm;
  at::set_num_threads(2);
  const double two = grad_norm(grads).norm;
  at::set_num_threads(before);
  EXPECT_EQ(one, two);
}

TEST(GradNorm, HugeAndTinyValuesKeepTheirNorm) {
  auto rel = [](double value, double expected) { return std::abs(value / expected - 1.0); };
  EXPECT_LT(rel(grad_norm({at::full({4}, 1e30)}).norm, 2e30), 1e-6);
  EXPECT_LT(rel(grad_norm({at::full({4}, 1e-30)}).norm, 2e-30), 1e-6);
  EXPECT_LT(rel(grad_norm({at::full({4}, 1e300, at::kDouble)}).norm, 2e300), 1e-12);
  EXPECT_LT(rel(grad_norm({at::full({4}, 1e-300, at::kDouble)}).norm, 2e-300), 1e-12);
  EXPECT_LT(rel(grad_norm({at::full({4}, 1e200, at::kDouble)}, 3.0).norm, 1e200 * std::cbrt(4.0)),
            1e-12);
  EXPECT_TRUE(grad_norm({at::full({4}, 1e300, at::kDouble)}).finite);
  EXPECT_EQ(grad_norm({at::zeros({3})}).norm, 0.0);
  EXPECT_EQ(grad_norm({}).norm, 0.0);
  EXPECT_TRUE(grad_norm({}).finite);
}

TEST(GradNorm, OneBadElementAnywhereIsSeen) {
  for (double bad : {kInf, -kInf, std::nan("")})
    for (int64_t place : {int64_t{0}, kSumChunk - 1, kSumChunk, int64_t{140000}})
      for (auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
        at::Tensor grad = random_tensor({140001}, "g", 1.0, dtype);
        grad[place] = bad;
        EXPECT_FALSE(grad_norm({random_tensor({3}, "x"), grad}).finite) << bad << " " << place;
      }
  at::Tensor both = at::zeros({2});
  both[0] = kInf;
  both[1] = -kInf;
  EXPECT_FALSE(grad_norm({both}).finite);
  EXPECT_FALSE(grad_norm({both}, kInf).finite);
}

TEST(GradNorm, RefusesWhatHasNoNorm) {
  EXPECT_THROW(grad_norm({at::ones({2}, at::kLong)}), Error);
  EXPECT_THROW(grad_norm({at::ones({2, 2}).to_sparse()}), Error);
  EXPECT_THROW(grad_norm({at::ones({2})}, 0.0), Error);
}

TEST(ClipCoefficient, IsMegatrons) {
  EXPECT_EQ(clip_coefficient(79.52615406070822, 1.0), 0.012574479417955335);  // golden manifest
  EXPECT_EQ(clip_coefficient(79.52615406070822, 0.1), 0.0012574479417955336);
  EXPECT_EQ(clip_coefficient(79.52615406070822, 1e9), 1.0);
  EXPECT_EQ(clip_coefficient(0.0, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(1e30, 0.0), 1.0);
  EXPECT_THROW(clip_coefficient(1.0, -1.0), Error);
}

}  // namespace
}  // namespace muoncore::optim
