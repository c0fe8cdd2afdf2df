// The transformer against a naive fp64 one written out loop by loop, and its gradients against
// finite differences.
#include "muoncore/models/causal_lm.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/log_softmax.h>
#include <gmock/gmock.h>

#include "muoncore/core/check.h"
#include "muoncore/models/rope.h"
#include "tests/models/toy_models.h"

namespace muoncore::models {
namespace {

using Matrix = std::vector<std::vector<double>>;

// One sequence through the model, by the formulas alone.
class Naive {
 public:
  explicit Naive(const CausalLM& model) : c_(model.config()), frequencies_(rope_frequencies(c_)) {
    for (const auto& [name, param] : model.named_params())
      params_[name] = param.detach().to(at::kDouble);
  }

  Matrix logits(const std::vector<int64_t>& ids) const {
    Matrix x;
    for (int64_t id : ids) x.push_back(row(params_.at("model.embed_tokens.weight"), id));
    for (int64_t i = 0; i < c_.num_hidden_layers; ++i) {
      std::string p = fmt::format("model.layers.{}.", i);
      add(x, attention(norm(x, p + "input_layernorm"), p + "self_attn."));
      add(x, mlp(norm(x, p + "post_attention_layernorm"), p + "mlp."));
    }
    return product(norm(x, "model.norm"),
                   c_.tie_word_embeddings ? "model.embed_tokens" : "lm_head");
  }

 private:
  static std::vector<double> row(const at::Tensor& t, int64_t i) {
    const double* p = t.const_data_ptr<double>() + i * t.size(1);
    return {p, p + t.size(1)};
  }
  static void add(Matrix& x, const Matrix& y) {
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t j = 0; j < x[t].size(); ++j) x[t][j] += y[t][j];
  }
  std::vector<double> norm(const double* x, size_t n, const std::string& name) const {
    const double* w = params_.at(name + ".weight").const_data_ptr<double>();
    double sum = 0;
    for (size_t j = 0; j < n; ++j) sum += x[j] * x[j];
    std::vector<double> y(n);
    for (size_t j = 0; j < n; ++j)
      y[j] = x[j] / std::sqrt(sum / static_cast<double>(n) + c_.rms_norm_eps) * w[j];
    return y;
  }
  Matrix norm(const Matrix& x, const std::string& name) const {
    Matrix y;
    for (const auto& r : x) y.push_back(norm(r.data(), r.size(), name));
    return y;
  }
  Matrix product(const Matrix& x, const std::string& name) const {
    const at::Tensor& w = params_.at(name + ".weight");
    auto bias = params_.find(name + ".bias");
    Matrix y;
    for (const auto& r : x) {
      y.emplace_back();
      for (int64_t o = 0; o < w.size(0); ++o) {
        double sum = bias == params_.end() ? 0 : bias->second.const_data_ptr<double>()[o];
        auto weights = row(w, o);
        for (size_t j = 0; j < r.size(); ++j) sum += r[j] * weights[j];
        y.back().push_back(sum);
      }
    }
    return y;
  }
  // Splits into heads; QK-norm where there is one; rotated by position.
  void prepare(Matrix& x, const std::string& norm_name) const {
    auto d = static_cast<size_t>(c_.head_dim);
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t h = 0; h < x[t].size(); h += d) {
        if (c_.qk_norm) {
          auto y = norm(&x[t][h], d, norm_name);
          std::copy(y.begin(), y.end(), x[t].begin() + static_cast<int64_t>(h));
        }
        for (size_t j = 0; j < d / 2; ++j) {
          double angle = static_cast<double>(t) * frequencies_.inverse[j];
          double a = x[t][h + j], b = x[t][h + j + d / 2], f = frequencies_.attention_factor;
          x[t][h + j] = f * (a * std::cos(angle) - b * std::sin(angle));
          x[t][h + j + d / 2] = f * (b * std::cos(angle) + a * std::sin(angle));
        }
      }
  }
  Matrix attention(const Matrix& x, const std::string& p) const {
    Matrix q = product(x, p + "q_proj"), k = product(x, p + "k_proj"), v = product(x, p + "v_proj");
    prepare(q, p + "q_norm");
    prepare(k, p + "k_norm");
    auto d = static_cast<size_t>(c_.head_dim);
    auto group = static_cast<size_t>(c_.num_attention_heads / c_.num_key_value_heads);
    Matrix y(x.size(), std::vector<double>(q[0].size(), 0.0));
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t h = 0; h < q[0].size() / d; ++h) {
        std::vector<double> weight(t + 1);
        double total = 0;
        for (size_t s = 0; s <= t; ++s) {
          double dot = 0;
          for (size_t j = 0; j < d; ++j) dot += q[t][h * d + j] * k[s][h / group * d + j];
          total += weight[s] = std::exp(dot / std::sqrt(static_cast<double>(d)));
        }
        for (size_t s = 0; s <= t; ++s)
          for (size_t j = 0; j < d; ++j)
            y[t][h * d + j] += weight[s] / total * v[s][h / group * d + j];
      }
    return product(y, p + "o_proj");
  }
  Matrix mlp(const Matrix& x, const std::string& p) const {
    Matrix g = product(x, p + "gate_proj"), u = product(x, p + "up_proj");
    for (size_t t = 0; t < g.size(); ++t)
      for (size_t j = 0; j < g[t].size(); ++j)
        g[t][j] = g[t][j] / (1 + std::exp(-g[t][j])) * u[t][j];
    return product(g, p + "down_proj");
  }

  ModelConfig c_;
  RopeFrequencies frequencies_;
  std::map<std::string, at::Tensor> params_;
};

at::Tensor naive_logits(const CausalLM& model, const at::Tensor& ids) {
  Naive naive(model);
  at::Tensor out = at::empty({ids.size(0), ids.size(1), model.config().vocab_size}, at::kDouble);
  for (int64_t b = 0; b < ids.size(0); ++b) {
    const int64_t* row = ids[b].contiguous().const_data_ptr<int64_t>();
    auto logits = naive.logits({row, row + ids.size(1)});
    for (int64_t t = 0; t < ids.size(1); ++t)
      std::copy(logits[static_cast<size_t>(t)].begin(), logits[static_cast<size_t>(t)].end(),
                out[b][t].mutable_data_ptr<double>());
  }
  return out;
}

double greatest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

std::vector<ModelConfig> every_kind() {
  std::vector<ModelConfig> kinds{toy_config("qwen3"), toy_config("qwen2"), toy_config("llama")};
  kinds[1].tie_word_embeddings = true;
  ModelConfig llama = toy_config("llama");
  llama.qkv_bias = llama.output_bias = llama.mlp_bias = true;
  llama.rope_scaling.type = RopeType::kLlama3;
  llama.rope_scaling.factor = 4;
  llama.rope_scaling.original_max_position_embeddings = 16;
  kinds.push_back(llama);
  ModelConfig one_head = toy_config("qwen3");
  one_head.num_attention_heads = one_head.num_key_value_heads = 1;
  one_head.rope_scaling.type = RopeType::kYarn;
  one_head.rope_scaling.factor = 2;
  kinds.push_back(one_head);
  return kinds;
}

TEST(CausalLM, EqualsTheFormulasInEveryKind) {
  for (const ModelConfig& config : every_kind()) {
    auto model = toy_model(config);
    for (auto [rows, tokens] : {std::pair<int64_t, int64_t>{2, 9}, {1, 1}, {3, 17}}) {
      at::Tensor ids = toy_ids(config, rows, tokens);
      at::Tensor logits = model->logits(model->forward_hidden(ids));
      EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{rows, tokens, config.vocab_size}));
      EXPECT_LT(greatest_difference(logits, naive_logits(*model, ids)), 2e-5) << config.model_type;
    }
  }
}

TEST(CausalLM, InDoublePrecisionTheDifferenceVanishes) {
  for (const ModelConfig& config : every_kind()) {
    auto model = toy_model(config, 3, at::kDouble);
    at::Tensor ids = toy_ids(config, 2, 6);
    // RoPE's angles are rounded to fp32, as in the checkpoints' training: the only difference left.
    EXPECT_LT(
        greatest_difference(model->logits(model->forward_hidden(ids)), naive_logits(*model, ids)),
        1e-5);
  }
}

TEST(CausalLM, Bf16IsNearAndKeepsItsType) {
  ModelConfig config = toy_config();
  auto wide = toy_model(config), narrow = toy_model(config, 1, at::kBFloat16);
  at::Tensor ids = toy_ids(config, 2, 12);
  at::Tensor expected = wide->logits(wide->forward_hidden(ids));
  at::Tensor logits = narrow->logits(narrow->forward_hidden(ids));
  EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
  EXPECT_LT(greatest_difference(logits, expected), 0.05 * expected.abs().max().item<double>());
  EXPECT_GT(greatest_difference(logits, expected), 0);
}

TEST(CausalLM, ATokenNeverSeesWhatFollows) {
  ModelConfig config = toy_config();
  auto model = toy_model(config);
  at::Tensor ids = toy_ids(config, 1, 20);
  at::Tensor changed = ids.clone();
  changed.narrow(1, 11, 9).fill_(0);
  at::Tensor a = model->forward_hidden(ids), b = model->forward_hidden(changed);
  EXPECT_EQ(greatest_difference(a.narrow(1, 0, 11), b.narrow(1, 0, 11)), 0);
  EXPECT_GT(greatest_difference(a.narrow(1, 11, 9), b.narrow(1, 11, 9)), 0.01);
}

// Every parameter, along a direction that touches all of its elements: d loss / d step, central
// differences in fp64.
TEST(CausalLM, GradientsEqualFiniteDifferences) {
  for (const ModelConfig& config : every_kind()) {
    auto model = toy_model(config, 5, at::kDouble);
    at::Tensor ids = toy_ids(config, 2, 7);
    auto loss = [&] {
      at::Tensor logp = at::log_softmax(model->logits(model->forward_hidden(ids)), -1);
      return -logp.narrow(1, 0, 6).gather(2, ids.narrow(1, 1, 6).unsqueeze(2)).mean();
    };
    loss().backward();
    for (auto& [name, param] : model->named_params()) {
      c10::NoGradGuard no_grad;
      at::Tensor direction =
          at::arange(param.numel(), param.options()).add(1).sin().view(param.sizes());
      double step = 1e-5;
      param.add_(direction, step);
      double up = loss().item<double>();
      param.add_(direction, -2 * step);
      double down = loss().item<double>();
      param.add_(direction, step);
      double expected = (up - down) / (2 * step);
      double found = (param.grad() * direction).sum().item<double>();
      EXPECT_NEAR(found, expected, 1e-8 + 1e-6 * std::abs(expected))
          << config.model_type << " " << name;
    }
  }
}

TEST(CausalLM, NamesRolesAndShapesAreHuggingFaces) {
  ModelConfig config = toy_config("qwen2");
  CausalLM model(config);
  auto params = model.named_params();
  const auto& specs = model.param_specs();
  ASSERT_EQ(params.size(), specs.size());
  ASSERT_EQ(params.size(), 1 + 3 * (7 + 3 + 2) + 1 + 1u);
  std::map<std::string, ParamRole> roles;
  int64_t count = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(params[i].first, specs[i].name);
    EXPECT_EQ(params[i].second.sizes().vec(), specs[i].shape);
    EXPECT_TRUE(params[i].second.requires_grad());
    roles[specs[i].name] = specs[i].role;
    count += params[i].second.numel();
  }
  EXPECT_EQ(count, config.parameter_count());
  EXPECT_EQ(roles.at("model.embed_tokens.weight"), ParamRole::kEmbedding);
  EXPECT_EQ(roles.at("model.layers.2.self_attn.k_proj.weight"), ParamRole::kMatrix);
  EXPECT_EQ(roles.at("model.layers.0.self_attn.q_proj.bias"), ParamRole::kBias);
  EXPECT_EQ(roles.at("model.layers.1.mlp.down_proj.weight"), ParamRole::kMatrix);
  EXPECT_EQ(roles.at("model.layers.1.post_attention_layernorm.weight"), ParamRole::kNorm);
  EXPECT_EQ(roles.at("model.norm.weight"), ParamRole::kNorm);
  EXPECT_EQ(roles.at("lm_head.weight"), ParamRole::kOutput);
}

TEST(CausalLM, TheRecommendedToyHas796032Parameters) {  // reference/rl.md 1.1
  ModelConfig c = toy_config();
  c.vocab_size = 32, c.hidden_size = 128, c.intermediate_size = 384, c.num_hidden_layers = 4;
  c.num_attention_heads = 4, c.num_key_value_heads = 2, c.head_dim = 32;
  CausalLM model(c);
  int64_t matrices = 0;
  for (const auto& spec : model.param_specs()) matrices += spec.role == ParamRole::kMatrix;
  EXPECT_EQ(c.parameter_count(), 796032);
  EXPECT_EQ(matrices, 28);
}

TEST(CausalLM, TiedEmbeddingsAreOneParameterWithBothGradients) {
  ModelConfig config = toy_config();
  config.tie_word_embeddings = true;
  auto model = toy_model(config);
  EXPECT_EQ(model->named_params().back().first, "model.norm.weight");
  model->logits(model->forward_hidden(toy_ids(config, 1, 1))).sum().backward();
  at::Tensor rows = model->named_params()[0].second.grad().abs().sum(1);
  EXPECT_EQ(rows.gt(0).sum().item<int64_t>(), config.vocab_size);
}

TEST(CausalLM, InitialWeightsAreKeyedByNameAndSeed) {
  ModelConfig config = toy_config();
  config.vocab_size = 2000;
  config.initializer_range = 0.02;
  CausalLM a(config), b(config), c(config);
  a.init_weights(7);
  b.init_weights(7);
  c.init_weights(8);
  config.num_hidden_layers = 1;
  CausalLM shallow(config);
  shallow.init_weights(7);
  auto pa = a.named_parameters(), pc = c.named_parameters(), ps = shallow.named_parameters();
  for (const auto& item : b.named_parameters())
    EXPECT_TRUE(pa[item.key()].equal(item.value())) << item.key();
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  EXPECT_TRUE(ps[q].equal(pa[q]));  // whatever else the model has
  EXPECT_FALSE(pc[q].equal(pa[q]));
  EXPECT_FALSE(pa["model.layers.1.self_attn.q_proj.weight"].equal(pa[q]));
  EXPECT_TRUE(pa["model.norm.weight"].eq(1).all().item<bool>());
  const at::Tensor& embedding = pa["model.embed_tokens.weight"];
  EXPECT_NEAR(embedding.std().item<double>(), 0.02, 0.0003);
  EXPECT_NEAR(embedding.mean().item<double>(), 0, 0.0003);
  EXPECT_GT(embedding.abs().max().item<double>(), 0.07);  // 48,000 draws: some beyond 3.5 sigma
}

TEST(CausalLM, RefusesIdsOfAnotherKind) {
  CausalLM model(toy_config());
  EXPECT_THROW(model.forward_hidden(at::zeros({3}, at::kLong)), Error);
  EXPECT_THROW(model.forward_hidden(at::zeros({1, 3}, at::kInt)), Error);
  EXPECT_THROW(model.forward_hidden(at::zeros({1, 0}, at::kLong)), Error);
  EXPECT_THROW(model.forward_hidden(at::full({1, 3}, 37, at::kLong)), Error);
  EXPECT_THROW(model.forward_hidden(at::full({1, 3}, -1, at::kLong)), Error);
}

}  // namespace
}  // namespace muoncore::models
