#include "muoncore/rl/rollout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "muoncore/core/check.h"
#include "muoncore/data/char_tokenizer.h"
#include "muoncore/models/causal_lm.h"
#include "muoncore/rl/response_log_probs.h"
#include "tests/support/error_of.h"

namespace muoncore::rl {
namespace {

using testing::HasSubstr;

constexpr int64_t kEos = 2;

models::ModelConfig tiny_config() {
  models::ModelConfig c;
  c.vocab_size = 32;
  c.hidden_size = 24;
  c.intermediate_size = 40;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 6;
  c.max_position_embeddings = 64;
  c.initializer_range = 0.3;  // far from uniform, so that a wrong position or mask shows
  return c;
}

models::CausalLM& tiny_model() {
  static auto model = [] {
    auto m = std::make_shared<models::CausalLM>(tiny_config());
    m->init_weights(5);
    return m;
  }();
  return *model;
}

const std::vector<std::vector<int64_t>>& prompts() {
  static const std::vector<std::vector<int64_t>> p = {
      {1, 5, 9}, {1, 7}, {1, 20, 21, 22, 23, 24, 25}, {30}, {1, 5, 9, 4}};
  return p;
}

RolloutOptions options() {
  RolloutOptions o;
  o.n = 3;
  o.max_new_tokens = 12;
  o.stop_ids = {kEos, 11};
  o.seed = 9;
  o.step = 4;
  return o;
}

std::vector<std::vector<int64_t>> responses(const Rollout& r) {
  std::vector<std::vector<int64_t>> all;
  for (int64_t i = 0; i < r.rows(); ++i) all.push_back(r.response(i));
  return all;
}

bool is_stop(int64_t id) { return id == kEos || id == 11; }

TEST(Rollout, LayoutMaskAndFinishReasons) {
  RolloutOptions o = options();
  o.pad_id = 3;
  Rollout r = generate(tiny_model(), prompts(), o);
  ASSERT_EQ(r.rows(), 15);
  bool stopped = false, ran_out = false;
  int64_t longest = 0;
  for (int64_t i = 0; i < r.rows(); ++i) {
    size_t at = static_cast<size_t>(i);
    const auto& prompt = prompts()[at / 3];
    auto answer = r.response(i);
    int64_t p = static_cast<int64_t>(prompt.size()), n = r.response_lengths[at];
    ASSERT_EQ(r.prompt_lengths[at], p);
    ASSERT_GE(n, 1);
    longest = std::max(longest, p + n);
    for (int64_t t = 0; t < r.ids.size(1); ++t) {
      int64_t id = r.ids[i][t].item<int64_t>();
      bool in_response = t >= p && t < p + n;
      EXPECT_EQ(r.response_mask[i][t].item<float>(), in_response ? 1.0f : 0.0f);
      if (t < p) {
        EXPECT_EQ(id, prompt[static_cast<size_t>(t)]);
      }
      if (t >= p + n) {
        EXPECT_EQ(id, 3);
      }
      if (!in_response) {
        EXPECT_EQ(r.log_probs[i][t].item<float>(), 0.0f);
      }
    }
    EXPECT_EQ(std::count_if(answer.begin(), answer.end() - 1, is_stop), 0);
    bool stop = is_stop(answer.back());
    EXPECT_EQ(r.finish_reasons[at], stop ? FinishReason::kStop : FinishReason::kLength);
    if (!stop) {
      EXPECT_EQ(n, 12);
    }
    stopped |= stop;
    ran_out |= !stop;
  }
  EXPECT_TRUE(stopped && ran_out) << "choose a seed with both kinds of end";
  EXPECT_EQ(r.ids.size(1), longest);
  EXPECT_FALSE(r.log_probs.requires_grad());
}

TEST(Rollout, LogProbsAreThoseOfTrainingAtTheSameTemperature) {
  RolloutOptions o = options();
  o.sampling = {.temperature = 0.7, .top_k = 9, .top_p = 0.95};
  Rollout r = generate(tiny_model(), prompts(), o);
  at::NoGradGuard no_grad;
  auto trained = response_log_probs(tiny_model(), r.ids, r.response_mask, 0.7, true);
  EXPECT_LT((trained.log_probs - r.log_probs).abs().max().item<double>(), 1e-5);
  EXPECT_EQ((trained.entropy * (1 - r.response_mask)).abs().sum().item<double>(), 0.0);
  EXPECT_GT((trained.entropy * r.response_mask).sum().item<double>(), 0.0);
}

TEST(Rollout, GreedyFollowsTheArgmaxOfTheWholeSequence) {
  RolloutOptions o = options();
  o.n = 1;
  o.stop_ids = {};
  o.sampling.temperature = 0.0;
  Rollout r = generate(tiny_model(), prompts(), o);
  at::NoGradGuard no_grad;
  for (int64_t i = 0; i < r.rows(); ++i) {
    std::vector<int64_t> ids = prompts()[static_cast<size_t>(i)];
    for (int step = 0; step < 12; ++step) {  // no cache: the whole sequence again
      at::Tensor hidden = tiny_model().forward_hidden(at::tensor(ids, at::kLong).unsqueeze(0));
      ids.push_back(
          tiny_model().logits(hidden.select(1, hidden.size(1) - 1)).argmax().item<int64_t>());
    }
    std::vector<int64_t> expected(ids.end() - 12, ids.end());
    EXPECT_EQ(r.response(i), expected) << "prompt " << i;
  }
}

TEST(Rollout, TokensDoNotDependOnTheBatch) {
  for (const auto& sampling : {SamplingOptions{}, SamplingOptions{.top_k = 7, .top_p = 0.8}}) {
    RolloutOptions o = options();
    o.sampling = sampling;
    auto whole = responses(generate(tiny_model(), prompts(), o));
    for (int64_t rows : {1, 2, 4, 7, 14}) {  // splits the samples of a prompt too
      o.max_batch_rows = rows;
      EXPECT_EQ(responses(generate(tiny_model(), prompts(), o)), whole) << rows;
    }
    o.max_batch_rows = 512;
    for (size_t p = 0; p < prompts().size(); ++p) {  // each prompt alone, under its own key
      o.first_prompt = p;
      auto alone = responses(generate(tiny_model(), {prompts()[p]}, o));
      for (size_t s = 0; s < 3; ++s) EXPECT_EQ(alone[s], whole[p * 3 + s]) << p << " " << s;
    }
  }
}

TEST(Rollout, SamplesStepsAndSeedsDiffer) {
  RolloutOptions o = options();
  o.n = 8;
  o.stop_ids = {};
  auto a = responses(generate(tiny_model(), prompts(), o));
  EXPECT_EQ(responses(generate(tiny_model(), prompts(), o)), a);
  std::sort(a.begin(), a.begin() + 8);
  EXPECT_EQ(std::unique(a.begin(), a.begin() + 8), a.begin() + 8);
  a = responses(generate(tiny_model(), prompts(), o));
  o.step += 1;
  EXPECT_NE(responses(generate(tiny_model(), prompts(), o)), a);
  o.step -= 1;
  o.seed += 1;
  EXPECT_NE(responses(generate(tiny_model(), prompts(), o)), a);
}

TEST(Rollout, StreamingGivesTheSameTokens) {
  RolloutOptions o = options();
  o.n = 1;
  for (size_t p = 0; p < prompts().size(); ++p) {
    o.first_prompt = p;
    Rollout whole = generate(tiny_model(), {prompts()[p]}, o);
    std::vector<int64_t> streamed;
    FinishReason reason = generate_streaming(tiny_model(), prompts()[p], o, [&](int64_t id) {
      streamed.push_back(id);
      return true;
    });
    EXPECT_EQ(streamed, whole.response(0));
    EXPECT_EQ(reason, whole.finish_reasons[0]);
  }
  int calls = 0;
  o.stop_ids = {};
  EXPECT_EQ(generate_streaming(tiny_model(), prompts()[0], o, [&](int64_t) { return ++calls < 3; }),
            FinishReason::kLength);
  EXPECT_EQ(calls, 3);
}

TEST(Rollout, OneTokenNoPromptsAndTheLastPosition) {
  RolloutOptions o = options();
  o.max_new_tokens = 1;
  Rollout r = generate(tiny_model(), prompts(), o);
  for (int64_t n : r.response_lengths) EXPECT_EQ(n, 1);
  EXPECT_EQ(generate(tiny_model(), {}, o).rows(), 0);
  o.stop_ids = {};
  o.max_new_tokens = 63;
  EXPECT_EQ(generate(tiny_model(), {{30}}, o).response_lengths[0], 63);
}

TEST(Rollout, GradientsStillFlowAfterARollout) {
  models::CausalLM model(tiny_config());
  model.init_weights(1);
  Rollout r = generate(model, prompts(), options());
  auto out = response_log_probs(model, r.ids, r.response_mask, 1.0, true);
  (out.log_probs.sum() + out.entropy.sum()).backward();
  for (const auto& [name, p] : model.named_params()) {
    ASSERT_TRUE(p.grad().defined()) << name;
    EXPECT_TRUE(p.grad().isfinite().all().item<bool>()) << name;
    EXPECT_GT(p.grad().abs().sum().item<double>(), 0.0) << name;
  }
}

TEST(Rollout, TextsLeaveTheStopTokenOut) {
  data::CharTokenizer tokenizer;
  Rollout r;
  r.ids = torch::tensor({{1, 4, 5, 6, 2}, {1, 7, 2, 0, 0}}, at::kLong);
  r.prompt_lengths = {2, 1};
  r.response_lengths = {3, 2};
  EXPECT_THAT(response_texts(r, tokenizer), testing::ElementsAre("23", "4"));
}

TEST(Rollout, RefusalsNameTheValue) {
  auto run = [](std::vector<std::vector<int64_t>> p, auto change) {
    RolloutOptions o = options();
    change(o);
    return error_of([&] { generate(tiny_model(), p, o); });
  };
  auto same = [](RolloutOptions&) {};
  EXPECT_THAT(run({{1}, {}}, same), HasSubstr("prompt 1 is empty"));
  EXPECT_THAT(run({{1, 32}}, same), HasSubstr("token id 32"));
  EXPECT_THAT(run({{-1}}, same), HasSubstr("token id -1"));
  EXPECT_THAT(run({{1, 2}}, [](RolloutOptions& o) { o.max_new_tokens = 63; }),
              HasSubstr("max_position_embeddings 64"));
  EXPECT_THAT(run({{1}}, [](RolloutOptions& o) { o.max_new_tokens = 0; }),
              HasSubstr("max_new_tokens"));
  EXPECT_THAT(run({{1}}, [](RolloutOptions& o) { o.n = 0; }), HasSubstr("n is 0"));
  EXPECT_THAT(run({{1}}, [](RolloutOptions& o) { o.pad_id = 32; }), HasSubstr("pad_id"));
  EXPECT_THAT(run({{1}}, [](RolloutOptions& o) { o.max_batch_rows = 0; }),
              HasSubstr("max_batch_rows"));
  EXPECT_THAT(run({{1}}, [](RolloutOptions& o) { o.sampling.top_p = 0; }), HasSubstr("top_p"));
}

TEST(Rollout, ABrokenModelIsNamed) {
  models::CausalLM model(tiny_config());
  model.init_weights(1);
  {
    at::NoGradGuard no_grad;
    model.named_params()[0].second.fill_(std::nanf(""));
  }
  EXPECT_THAT(error_of([&] { generate(model, {{1}}, options()); }), HasSubstr("overflowed"));
}

TEST(ResponseLogProbs, RefusesAResponseWithoutAPredecessor) {
  at::Tensor ids = at::zeros({1, 3}, at::kLong);
  EXPECT_THROW(response_log_probs(tiny_model(), ids, at::ones({1, 3})), Error);
  EXPECT_THROW(response_log_probs(tiny_model(), ids, at::ones({1, 2})), Error);
  at::NoGradGuard no_grad;
  auto none = response_log_probs(tiny_model(), ids, at::zeros({1, 3}), 1.0, true);
  EXPECT_EQ(none.log_probs.abs().sum().item<double>(), 0.0);
}

}  // namespace
}  // namespace muoncore::rl
