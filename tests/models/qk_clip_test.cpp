#include "muoncore/models/qk_clip.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>

#include "muoncore/core/check.h"
#include "tests/models/toy_models.h"

namespace muoncore::models {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The largest logit of every head of one forward: [layers, heads], fp64 on the CPU.
at::Tensor largest_logits(CausalLM& model, const at::Tensor& ids,
                          std::vector<int64_t> lengths = {}) {
  const at::NoGradGuard no_grad;
  LogitWatch watch(model);
  watch.set_lengths(std::move(lengths));
  model.forward_hidden(ids);
  return watch.largest().to(at::kDouble);
}

std::map<std::string, at::Tensor> weights(const CausalLM& model) {
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, param] : model.named_params()) out[name] = param.detach().clone();
  return out;
}

// Attention adds nothing to the residual, so that the input of every layer stays as it is when
// query and key weights change.
void silence_attention(CausalLM& model) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, param] : model.named_params())
    if (name.find("o_proj") != std::string::npos) param.zero_();
}

// The formula in plain loops, fp64: one head, no norms, rotate-half RoPE.
double slow_largest(const CausalLM& model, const at::Tensor& ids, int64_t head, int64_t row,
                    int64_t tokens) {
  const ModelConfig& c = model.config();
  auto params = weights(model);
  const auto get = [&](const std::string& name) { return params.at(name).to(at::kDouble); };
  const at::Tensor x = get("model.embed_tokens.weight").index_select(0, ids.select(0, row));
  const at::Tensor rms = (x.square().mean(1, true) + c.rms_norm_eps).rsqrt();
  const at::Tensor y = x * rms * get("model.layers.0.input_layernorm.weight");
  const auto project = [&](const std::string& name, int64_t which) {
    const std::string full = "model.layers.0.self_attn." + name;
    at::Tensor out = y.mm(get(full + ".weight").narrow(0, which * c.head_dim, c.head_dim).t());
    if (c.qkv_bias) out = out + get(full + ".bias").narrow(0, which * c.head_dim, c.head_dim);
    return out;
  };
  const auto rotate = [&](const at::Tensor& v) {
    at::Tensor out = v.clone();
    const int64_t half = c.head_dim / 2;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(t) *
            std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
        const double a = v[t][i].item<double>(), b = v[t][i + half].item<double>();
        out[t][i] = a * std::cos(angle) - b * std::sin(angle);
        out[t][i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    return out;
  };
  const int64_t shared = c.num_attention_heads / c.num_key_value_heads;
  const at::Tensor q = rotate(project("q_proj", head)),
                   k = rotate(project("k_proj", head / shared));
  double largest = -kInfinity;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t s = 0; s <= t; ++s)
      largest = std::max(
          largest, q[t].dot(k[s]).item<double>() / std::sqrt(static_cast<double>(c.head_dim)));
  return largest;
}

TEST(LogitWatch, EqualsTheFormulaOnRealTokensAlone) {
  for (const char* type : {"llama", "qwen2"}) {
    ModelConfig config = toy_config(type);
    auto model = toy_model(config);
    const at::Tensor ids = toy_ids(config, 2, 7);
    const std::vector<int64_t> lengths{7, 4};
    const at::Tensor noted = largest_logits(*model, ids, lengths);
    for (int64_t head = 0; head < config.num_attention_heads; ++head) {
      const double expected =
          std::max(slow_largest(*model, ids, head, 0, 7), slow_largest(*model, ids, head, 1, 4));
      EXPECT_NEAR(noted[0][head].item<double>(), expected, 1e-4 * (1 + std::abs(expected)))
          << type << " head " << head;
    }
    const at::Tensor padded = ids.clone();
    padded.select(0, 1).narrow(0, 4, 3).fill_(1);  // what pads a row does not count
    EXPECT_TRUE(noted.equal(largest_logits(*model, padded, lengths)));
  }
}

TEST(LogitWatch, BlocksOfQueriesAndSeveralForwardsKeepTheMaximum) {
  ModelConfig config = toy_config("llama");
  config.max_position_embeddings = 700;
  auto model = toy_model(config);
  const at::Tensor ids = toy_ids(config, 1, 600);
  const at::Tensor whole = largest_logits(*model, ids);
  const at::NoGradGuard no_grad;
  LogitWatch watch(*model);
  EXPECT_EQ(watch.largest().max().item<double>(), -kInfinity);
  for (int64_t length : {100, 600, 300}) {
    watch.set_lengths({length});
    model->forward_hidden(ids);
  }
  EXPECT_TRUE(watch.largest().to(at::kDouble).equal(whole));
}

TEST(LogitWatch, ChangesNothingAndIsGoneWithItsScope) {
  auto model = toy_model(toy_config());
  const at::Tensor ids = toy_ids(model->config(), 2, 5);
  const at::Tensor plain = model->forward_hidden(ids);
  {
    LogitWatch watch(*model);
    EXPECT_TRUE(model->forward_hidden(ids).equal(plain));
    EXPECT_TRUE(watch.largest().isfinite().all().item<bool>());
    EXPECT_THAT([&] { LogitWatch second(*model); },
                ThrowsMessage<Error>(HasSubstr("one LogitWatch at a time")));
    watch.set_lengths({1});
    EXPECT_THAT([&] { model->forward_hidden(ids); },
                ThrowsMessage<Error>(HasSubstr("1 lengths for a forward of 2 rows")));
  }
  EXPECT_TRUE(model->forward_hidden(ids).equal(plain));
  LogitWatch again(*model);
}

// Biases are uneven in toy models: were they left out, the product would not follow.
TEST(QkClip, EveryHeadEndsAtTauOrKeepsItsLogit) {
  for (const char* type : {"llama", "qwen2"}) {
    auto model = toy_model(toy_config(type));
    silence_attention(*model);
    const at::Tensor ids = toy_ids(model->config(), 3, 9);
    const at::Tensor before = largest_logits(*model, ids);
    const double tau = before.median().item<double>();
    ASSERT_GT(tau, 0.0);
    const auto result = apply_qk_clip(model->config(), before, tau, scale_rows_of(*model));
    const at::Tensor after = largest_logits(*model, ids);
    EXPECT_GT(result.clipped_heads, 4);
    EXPECT_LT(result.clipped_heads, before.numel());
    EXPECT_EQ(result.largest_logit, before.max().item<double>());
    for (int64_t layer = 0; layer < before.size(0); ++layer)
      for (int64_t head = 0; head < before.size(1); ++head) {
        const double was = before[layer][head].item<double>();
        EXPECT_NEAR(after[layer][head].item<double>(), std::min(was, tau), 2e-6 * tau)
            << type << " layer " << layer << " head " << head;
      }
  }
}

TEST(QkClip, ScalesOnlyWhatIsAboveTauAndNoWeightGrows) {
  auto model = toy_model(toy_config("llama"));
  const ModelConfig& c = model->config();  // 6 heads, 2 kv heads of 8
  at::Tensor largest = at::full({3, 6}, 1.0, at::kDouble);
  largest[1][0] = 40.0;  // one head of the first group: its keys stay
  largest[2][3] = 40.0;  // all heads of the second group: its keys shrink by the mildest
  largest[2][4] = 160.0;
  largest[2][5] = 1000.0;
  largest[0][2] = -5.0;  // negative logits are no reason to divide by them
  const auto before = weights(*model);
  const auto result = apply_qk_clip(c, largest, 10.0, scale_rows_of(*model));
  EXPECT_EQ(result.clipped_heads, 4);
  EXPECT_EQ(result.largest_logit, 1000.0);
  const auto after = weights(*model);
  const std::string layer1 = "model.layers.1.self_attn.", layer2 = "model.layers.2.self_attn.";
  std::map<std::string, std::vector<double>> factors;  // of each head's rows
  factors[layer1 + "q_proj.weight"] = {0.25, 1, 1, 1, 1, 1};
  factors[layer2 + "q_proj.weight"] = {1, 1, 1, 0.5, 10.0 / 160 / 0.5, 10.0 / 1000 / 0.5};
  factors[layer2 + "k_proj.weight"] = {1, 0.5};
  for (const auto& [name, was] : before) {
    const auto found = factors.find(name);
    if (found == factors.end()) {
      EXPECT_TRUE(after.at(name).equal(was)) << name;
      continue;
    }
    for (size_t head = 0; head < found->second.size(); ++head) {
      const auto rows = [&](const at::Tensor& w) {
        return w.narrow(0, static_cast<int64_t>(head) * c.head_dim, c.head_dim).to(at::kDouble);
      };
      const at::Tensor expected = (rows(was) * found->second[head]).to(at::kFloat).to(at::kDouble);
      EXPECT_TRUE(rows(after.at(name)).equal(expected)) << name << " head " << head;
    }
  }
}

TEST(QkClip, WithNormsTheLayersWorstHeadDecides) {
  auto model = toy_model(toy_config("qwen3"));
  silence_attention(*model);
  const at::Tensor ids = toy_ids(model->config(), 3, 9);
  const at::Tensor before = largest_logits(*model, ids);
  const at::Tensor worst = before.amax({1});
  const double tau = worst.median().item<double>();  // one layer above it, one at it, one below
  const auto kept = weights(*model);
  apply_qk_clip(model->config(), before, tau, scale_rows_of(*model));
  const at::Tensor after = largest_logits(*model, ids);
  for (int64_t layer = 0; layer < 3; ++layer) {
    const double gamma = std::min(1.0, tau / worst[layer].item<double>());
    for (int64_t head = 0; head < 6; ++head)
      EXPECT_NEAR(after[layer][head].item<double>(), gamma * before[layer][head].item<double>(),
                  2e-6 * worst[layer].item<double>());
    for (const char* name : {"q_norm.weight", "k_norm.weight", "q_proj.weight"}) {
      const std::string full = fmt::format("model.layers.{}.self_attn.{}", layer, name);
      const bool same = weights(*model).at(full).equal(kept.at(full));
      EXPECT_EQ(same, gamma == 1.0 || std::string(name) == "q_proj.weight") << full;
    }
  }
}

TEST(QkClip, RefusesWhatHasNoMeaningAndTouchesNothing) {
  auto model = toy_model(toy_config("llama"));
  const auto kept = weights(*model);
  const auto clip = [&](const at::Tensor& largest, double tau) {
    return [&model, largest, tau] {
      apply_qk_clip(model->config(), largest, tau, scale_rows_of(*model));
    };
  };
  const at::Tensor large = at::full({3, 6}, 100.0);
  for (double bad : {std::nan(""), kInfinity}) {
    at::Tensor largest = large.clone();
    largest[2][5] = bad;
    EXPECT_THAT(clip(largest, 10.0), ThrowsMessage<Error>(HasSubstr("layer 2, head 5")));
  }
  EXPECT_THAT(clip(large, 0.0), ThrowsMessage<Error>(HasSubstr("tau must be above 0")));
  EXPECT_THAT(clip(large.narrow(1, 0, 5), 10.0), ThrowsMessage<Error>(HasSubstr("6 heads")));
  for (const auto& [name, was] : kept) EXPECT_TRUE(weights(*model).at(name).equal(was)) << name;
  clip(at::full({3, 6}, -kInfinity), 10.0)();  // nothing was watched
  for (const auto& [name, was] : kept) EXPECT_TRUE(weights(*model).at(name).equal(was)) << name;
}

}  // namespace
}  // namespace muoncore::models
