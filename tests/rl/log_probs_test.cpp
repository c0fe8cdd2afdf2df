#include "muoncore/rl/log_probs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"

namespace muoncore::rl {
namespace {

at::Tensor random(at::IntArrayRef shape, const char* name, double scale = 1.0) {
  at::Tensor t = at::empty(shape, at::kDouble);
  CounterRng rng({hash_name(name)});
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mutable_data_ptr<double>()[i] = scale * rng.normal(static_cast<uint64_t>(i));
  return t;
}

at::Tensor random_ids(at::IntArrayRef shape, int64_t vocabulary) {
  at::Tensor t = at::empty(shape, at::kLong);
  CounterRng rng({hash_name("ids")});
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(
        rng.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocabulary)));
  return t;
}

// The plain way: several copies of the logits, all of autograd.
TokenLogProbs plain(const at::Tensor& logits, const at::Tensor& ids, double temperature) {
  at::Tensor log_p = at::log_softmax(logits / temperature, -1);
  return {log_p.gather(-1, ids.unsqueeze(-1)).squeeze(-1), -(log_p.exp() * log_p).sum(-1)};
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST(TokenLogProbs, EntropyGolden) {
  at::Tensor logits =
      torch::tensor({{0., 1., 2., 3.}, {1., 1., 1., 1.}, {10., 0., 0., -10.}}, at::kDouble);
  auto out = token_log_probs(logits, at::tensor({3, 0, 0}, at::kLong), 1.0, true);
  EXPECT_NEAR(out.entropy[0].item<double>(), .947536964, 5e-10);
  EXPECT_NEAR(out.entropy[1].item<double>(), 1.3862943611, 5e-11);
  EXPECT_NEAR(out.entropy[2].item<double>(), .0009987552, 5e-11);
  EXPECT_NEAR(out.log_probs[1].item<double>(), -std::log(4.0), 1e-15);
}

struct Shape {
  std::vector<int64_t> rows;
  int64_t vocabulary;
  double temperature;
};

class AgainstPlain : public testing::TestWithParam<Shape> {};

TEST_P(AgainstPlain, ValuesAndGradientsInDouble) {
  const Shape& s = GetParam();
  std::vector<int64_t> shape = s.rows;
  shape.push_back(s.vocabulary);
  at::Tensor a = random(shape, "logits", 3.0).set_requires_grad(true);
  at::Tensor b = a.detach().clone().set_requires_grad(true);
  at::Tensor ids = random_ids(s.rows, s.vocabulary);
  at::Tensor w = random(s.rows, "weights"), v = random(s.rows, "entropy weights");
  for (bool with_entropy : {false, true}) {
    a.mutable_grad() = at::Tensor();
    b.mutable_grad() = at::Tensor();
    auto ours = token_log_probs(a, ids, s.temperature, with_entropy);
    auto theirs = plain(b, ids, s.temperature);
    ASSERT_EQ(ours.log_probs.sizes(), ids.sizes());
    EXPECT_LT(largest_difference(ours.log_probs, theirs.log_probs), 1e-12);
    at::Tensor loss = (ours.log_probs * w).sum(), expected = (theirs.log_probs * w).sum();
    if (with_entropy) {
      EXPECT_LT(largest_difference(ours.entropy, theirs.entropy), 1e-12);
      loss = loss + (ours.entropy * v).sum();
      expected = expected + (theirs.entropy * v).sum();
    } else {
      EXPECT_FALSE(ours.entropy.defined());
    }
    loss.backward();
    expected.backward();
    EXPECT_LT(largest_difference(a.grad(), b.grad()), 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AgainstPlain,
                         testing::Values(Shape{{1}, 1, 1.0}, Shape{{1}, 5, 0.7},
                                         Shape{{7, 3}, 32, 1.0}, Shape{{2, 3, 5}, 11, 1.9},
                                         // several chunks, and a last one that is not full
                                         Shape{{23}, 150'001, 1.3}));

TEST(TokenLogProbs, OnlyEntropyOrOnlyLogProbsMayBeUsed) {
  at::Tensor a = random({4, 9}, "logits").set_requires_grad(true);
  at::Tensor b = a.detach().clone().set_requires_grad(true);
  at::Tensor ids = random_ids({4}, 9);
  token_log_probs(a, ids, 1.0, true).entropy.sum().backward();
  plain(b, ids, 1.0).entropy.sum().backward();
  EXPECT_LT(largest_difference(a.grad(), b.grad()), 1e-13);
  a.mutable_grad() = at::Tensor();
  b.mutable_grad() = at::Tensor();
  token_log_probs(a, ids, 1.0, true).log_probs.sum().backward();
  plain(b, ids, 1.0).log_probs.sum().backward();
  EXPECT_LT(largest_difference(a.grad(), b.grad()), 1e-13);
}

TEST(TokenLogProbs, NarrowTypesComputeInSinglePrecision) {
  at::Tensor wide = random({6, 300}, "logits", 4.0);
  at::Tensor ids = random_ids({6}, 300);
  for (auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    at::Tensor logits = wide.to(type).set_requires_grad(true);
    at::Tensor exact = logits.detach().to(at::kDouble).set_requires_grad(true);
    auto out = token_log_probs(logits, ids, 0.8, true);
    auto reference = plain(exact, ids, 0.8);
    EXPECT_EQ(out.log_probs.scalar_type(), at::kFloat);
    EXPECT_LT(largest_difference(out.log_probs, reference.log_probs), 3e-6);
    EXPECT_LT(largest_difference(out.entropy, reference.entropy), 3e-6);
    (out.log_probs.sum() + out.entropy.sum()).backward();
    (reference.log_probs.sum() + reference.entropy.sum()).backward();
    EXPECT_EQ(logits.grad().scalar_type(), type);
    EXPECT_LT(largest_difference(logits.grad(), exact.grad()), type == at::kFloat ? 2e-6 : 2e-2);
  }
}

TEST(TokenLogProbs, NonContiguousLogits) {
  at::Tensor t = random({11, 5}, "logits").set_requires_grad(true);
  at::Tensor u = t.detach().clone().set_requires_grad(true);
  at::Tensor ids = random_ids({5}, 11);
  token_log_probs(t.t(), ids).log_probs.sum().backward();
  plain(u.t(), ids, 1.0).log_probs.sum().backward();
  EXPECT_LT(largest_difference(t.grad(), u.grad()), 1e-13);
}

TEST(TokenLogProbs, HugeLogitsAndForbiddenTokensStayFinite) {
  double inf = std::numeric_limits<double>::infinity();
  at::Tensor logits =
      torch::tensor({{1e30, 0.0, -1e30}, {0.0, -inf, 0.0}}, at::kDouble).set_requires_grad(true);
  auto out = token_log_probs(logits, at::tensor({0, 2}, at::kLong), 1.0, true);
  EXPECT_EQ(out.log_probs[0].item<double>(), 0.0);
  EXPECT_NEAR(out.log_probs[1].item<double>(), -std::log(2.0), 1e-15);
  EXPECT_EQ(out.entropy[0].item<double>(), 0.0);
  EXPECT_NEAR(out.entropy[1].item<double>(), std::log(2.0), 1e-15);
  (out.log_probs.sum() + out.entropy.sum()).backward();
  EXPECT_TRUE(logits.grad().isfinite().all().item<bool>());
  EXPECT_EQ(logits.grad()[1][1].item<double>(), 0.0);
}

TEST(TokenLogProbs, NoRowsAndNanRows) {
  auto empty = token_log_probs(at::zeros({0, 4}), at::zeros({0}, at::kLong), 1.0, true);
  EXPECT_EQ(empty.log_probs.numel(), 0);
  at::Tensor logits = at::zeros({2, 3});
  logits[0][1] = std::nanf("");
  auto out = token_log_probs(logits, at::zeros({2}, at::kLong));
  EXPECT_TRUE(std::isnan(out.log_probs[0].item<float>()));
  EXPECT_NEAR(out.log_probs[1].item<float>(), -std::log(3.0f), 1e-6);
}

TEST(TokenLogProbs, Refusals) {
  at::Tensor logits = at::zeros({2, 3});
  EXPECT_THROW(token_log_probs(logits, at::tensor({0, 3}, at::kLong)), Error);
  EXPECT_THROW(token_log_probs(logits, at::tensor({-1, 0}, at::kLong)), Error);
  EXPECT_THROW(token_log_probs(logits, at::zeros({3}, at::kLong)), Error);
  EXPECT_THROW(token_log_probs(logits, at::zeros({2}, at::kLong), 0.0), Error);
}

}  // namespace
}  // namespace muoncore::rl
