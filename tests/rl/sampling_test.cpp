#include "muoncore/rl/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"

namespace muoncore::rl {
namespace {

using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<int64_t> kept(const std::vector<float>& logits, const SamplingOptions& o) {
  return kept_tokens(logits.data(), static_cast<int64_t>(logits.size()), o);
}

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> out;
  for (double p : probabilities) out.push_back(static_cast<float>(std::log(p)));
  return out;
}

at::Tensor repeated(const std::vector<float>& logits, int64_t rows) {
  return torch::tensor(logits).unsqueeze(0).repeat({rows, 1});
}

TEST(Sampling, GreedyTakesTheLowestIdOfEquals) {
  at::Tensor logits = torch::tensor({{1.f, 3.f, 3.f}, {-kInf, -kInf, -2.f}, {0.f, 0.f, 0.f}});
  auto out =
      sample_tokens(logits, {0.99, 0.5, 0.99}, {.temperature = 0.0, .top_k = 1, .top_p = .1});
  EXPECT_THAT(out.ids, ElementsAre(1, 2, 0));
  EXPECT_NEAR(out.log_probs[2], -std::log(3.0), 1e-6);
  EXPECT_EQ(out.log_probs[1], 0.0f);
}

TEST(Sampling, InverseOfTheDistributionFunction) {
  std::vector<double> p = {0.2, 0.5, 0.3};
  auto at_u = [&](double u) { return sample_tokens(repeated(logs(p), 1), {u}, {}).ids[0]; };
  EXPECT_EQ(at_u(0.0), 0);
  EXPECT_EQ(at_u(0.1999), 0);
  EXPECT_EQ(at_u(0.2001), 1);
  EXPECT_EQ(at_u(0.6999), 1);
  EXPECT_EQ(at_u(0.7001), 2);
  EXPECT_EQ(at_u(std::nextafter(1.0, 0.0)), 2);
}

TEST(Sampling, ForbiddenTokensAreNeverDrawnNotEvenAtTheEdges) {
  at::Tensor logits = repeated({-kInf, 0.f, -kInf, 0.f, -kInf}, 3);
  auto out = sample_tokens(logits, {0.0, 0.5, std::nextafter(1.0, 0.0)}, {});
  EXPECT_THAT(out.ids, ElementsAre(1, 3, 3));
}

TEST(Sampling, FrequenciesMatchTheTemperedSoftmax) {
  const int64_t rows = 100'000, vocabulary = 6;
  std::vector<float> logits = {0.3f, -1.2f, 2.0f, 0.0f, 1.1f, -4.0f};
  for (double temperature : {0.5, 1.0, 2.5}) {
    std::vector<double> uniforms;
    for (int64_t i = 0; i < rows; ++i)
      uniforms.push_back(sample_uniform({7, 3, static_cast<uint64_t>(i), 0}, 2));
    auto out = sample_tokens(repeated(logits, rows), uniforms, {.temperature = temperature});
    at::Tensor p = at::softmax(torch::tensor(logits).to(at::kDouble) / temperature, 0);
    std::vector<double> counts(vocabulary, 0.0);
    for (int64_t id : out.ids) counts[static_cast<size_t>(id)] += 1;
    double chi2 = 0;
    for (int64_t v = 0; v < vocabulary; ++v) {
      double expected = p[v].item<double>() * static_cast<double>(rows);
      chi2 += std::pow(counts[static_cast<size_t>(v)] - expected, 2) / expected;
    }
    EXPECT_LT(chi2, 20.5) << temperature;  // 5 degrees of freedom, p = 0.001
    for (size_t i = 0; i < 50; ++i)
      EXPECT_NEAR(out.log_probs[i], std::log(p[out.ids[i]].item<double>()), 1e-6);
  }
}

TEST(Sampling, TopKKeepsAllThatTieWithTheKth) {
  std::vector<float> logits = {1, 5, 3, 3, 3, 0};
  EXPECT_THAT(kept(logits, {.top_k = 1}), ElementsAre(1));
  EXPECT_THAT(kept(logits, {.top_k = 2}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(kept(logits, {.top_k = 4}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(kept(logits, {.top_k = 5}), ElementsAre(1, 2, 3, 4, 0));
  EXPECT_THAT(kept(logits, {.top_k = 100}), ElementsAre(1, 2, 3, 4, 0, 5));
  EXPECT_THAT(kept(logits, {}), ElementsAre(1, 2, 3, 4, 0, 5));
  EXPECT_THAT(kept({-kInf, 2, -kInf}, {.top_k = 3}), ElementsAre(1));
}

TEST(Sampling, TopPKeepsTheShortestPrefixThatReachesP) {
  std::vector<float> logits = logs({0.1, 0.4, 0.2, 0.3});
  EXPECT_THAT(kept(logits, {.top_p = 1e-9}), ElementsAre(1));  // never empty
  EXPECT_THAT(kept(logits, {.top_p = 0.39}), ElementsAre(1));
  EXPECT_THAT(kept(logits, {.top_p = 0.41}),
              ElementsAre(1, 3));  // the token that crosses p is kept
  EXPECT_THAT(kept(logits, {.top_p = 0.69}), ElementsAre(1, 3));
  EXPECT_THAT(kept(logits, {.top_p = 0.71}), ElementsAre(1, 3, 2));
  EXPECT_THAT(kept(logits, {.top_p = 1.0}), ElementsAre(1, 3, 2, 0));
  // Exactly reached: two of four equal tokens make 0.5; the lower ids win.
  EXPECT_THAT(kept({2, 2, 2, 2}, {.top_p = 0.5}), ElementsAre(0, 1));
}

TEST(Sampling, TopPComesAfterTemperatureAndTopK) {
  std::vector<float> logits = logs({0.1, 0.4, 0.2, 0.3});
  // Of the two that top-k leaves, 0.4 / 0.7 = 0.571 reaches 0.55 by itself.
  EXPECT_THAT(kept(logits, {.top_k = 2, .top_p = 0.55}), ElementsAre(1));
  EXPECT_THAT(kept(logits, {.top_k = 2, .top_p = 0.58}), ElementsAre(1, 3));
  // At temperature 0.25 the largest has 0.4^4 / (0.4^4 + 0.3^4 + 0.2^4 + 0.1^4) = 0.723.
  EXPECT_THAT(kept(logits, {.temperature = 0.25, .top_p = 0.72}), ElementsAre(1));
  EXPECT_THAT(kept(logits, {.temperature = 0.25, .top_p = 0.73}), ElementsAre(1, 3));
}

TEST(Sampling, TruncatedDrawsRenormaliseButLogProbsAreOfTheWhole) {
  std::vector<double> p = {0.1, 0.4, 0.2, 0.3};
  const int64_t rows = 20'000;
  std::vector<double> uniforms;
  for (int64_t i = 0; i < rows; ++i) uniforms.push_back((static_cast<double>(i) + 0.5) / rows);
  auto out = sample_tokens(repeated(logs(p), rows), uniforms, {.top_k = 3, .top_p = 0.7});
  std::vector<double> counts(4, 0.0);
  for (int64_t id : out.ids) counts[static_cast<size_t>(id)] += 1.0 / rows;
  EXPECT_NEAR(counts[1], 4.0 / 7.0, 1e-4);
  EXPECT_NEAR(counts[3], 3.0 / 7.0, 1e-4);
  for (size_t i = 0; i < out.ids.size(); i += 997)
    EXPECT_NEAR(out.log_probs[i], std::log(p[static_cast<size_t>(out.ids[i])]), 1e-6);
}

TEST(Sampling, ARowDoesNotSeeItsNeighbours) {
  const int64_t rows = 65, vocabulary = 1003;  // odd: no row is aligned like another
  at::Tensor logits = at::empty({rows, vocabulary});
  CounterRng rng({hash_name("logits")});
  for (int64_t i = 0; i < logits.numel(); ++i)
    logits.mutable_data_ptr<float>()[i] =
        3 * static_cast<float>(rng.normal(static_cast<uint64_t>(i)));
  std::vector<double> uniforms;
  for (int64_t i = 0; i < rows; ++i)
    uniforms.push_back(sample_uniform({1, 2, static_cast<uint64_t>(i), 4}, 5));
  for (const auto& o : {SamplingOptions{}, SamplingOptions{.top_k = 50, .top_p = .9}}) {
    auto whole = sample_tokens(logits, uniforms, o);
    for (int64_t i = 0; i < rows; ++i) {
      auto alone = sample_tokens(logits.narrow(0, i, 1), {uniforms[static_cast<size_t>(i)]}, o);
      EXPECT_EQ(alone.ids[0], whole.ids[static_cast<size_t>(i)]);
      EXPECT_EQ(alone.log_probs[0], whole.log_probs[static_cast<size_t>(i)]);  // bit for bit
    }
  }
}

TEST(Sampling, EveryPartOfTheKeyMatters) {
  std::set<double> seen;
  for (uint64_t part = 0; part < 5; ++part) {
    SampleKey key{10, 20, 30, 40};
    uint64_t position = 50;
    uint64_t* parts[] = {&key.seed, &key.step, &key.prompt, &key.sample, &position};
    *parts[part] += 1;
    seen.insert(sample_uniform(key, position));
  }
  seen.insert(sample_uniform({10, 20, 30, 40}, 50));
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_EQ(sample_uniform({10, 20, 30, 40}, 50), sample_uniform({10, 20, 30, 40}, 50));
}

TEST(Sampling, ExtremeLogitsAndTemperatures) {
  at::Tensor logits = repeated({3e38f, -3e38f, 3e38f}, 2);
  EXPECT_THAT(sample_tokens(logits, {0.2, 0.8}, {}).ids, ElementsAre(0, 2));
  EXPECT_THAT(sample_tokens(logits, {0.2, 0.8}, {.temperature = 1e-300}).ids, ElementsAre(0, 2));
  // One token in the vocabulary, and bf16 logits.
  EXPECT_THAT(sample_tokens(at::full({1, 1}, -7.0), {0.9}, {.top_k = 5, .top_p = .5}).ids,
              ElementsAre(0));
  EXPECT_THAT(sample_tokens(logits.to(at::kBFloat16), {0.2, 0.8}, {}).ids, ElementsAre(0, 2));
  EXPECT_TRUE(sample_tokens(at::zeros({0, 4}), {}, {}).ids.empty());
}

TEST(Sampling, RefusesLogitsThatAreNoDistribution) {
  for (const auto& o : {SamplingOptions{}, SamplingOptions{.temperature = 0.0}}) {
    EXPECT_THROW(sample_tokens(repeated({0.f, std::nanf("")}, 1), {0.5}, o), Error);
    EXPECT_THROW(sample_tokens(repeated({0.f, kInf}, 1), {0.5}, o), Error);
    EXPECT_THROW(sample_tokens(repeated({-kInf, -kInf}, 1), {0.5}, o), Error);
  }
}

TEST(Sampling, RefusesOptionsOutOfRange) {
  for (double t : {-0.1, std::nan(""), HUGE_VAL})
    EXPECT_THROW(check_sampling_options({.temperature = t}), Error) << t;
  for (int64_t k : {0, -2}) EXPECT_THROW(check_sampling_options({.top_k = k}), Error) << k;
  for (double p : {0.0, -1.0, 1.1, std::nan("")})
    EXPECT_THROW(check_sampling_options({.top_p = p}), Error) << p;
  EXPECT_THROW(sample_tokens(at::zeros({2, 3}), {0.5}, {}), Error);
}

}  // namespace
}  // namespace muoncore::rl
