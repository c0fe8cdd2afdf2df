#include "muoncore/parallel/plan_models.h"

#include <fmt/ranges.h>

#include <functional>
#include <numeric>
#include <utility>

#include "muoncore/core/check.h"

namespace muoncore::parallel {
namespace {

using Shape = std::vector<int64_t>;

constexpr int kRows = 0, kColumns = 1, kReplicated = -1;  // what tensor parallelism cuts

class Builder {
 public:
  explicit Builder(PlanModel& model) : model_(model) {}

  // Everything added from here on belongs to this layer and begins with this prefix.
  void enter(int64_t layer, std::string prefix, int64_t expert = -1) {
    layer_ = layer;
    prefix_ = std::move(prefix);
    expert_ = expert;
  }
  void add(const std::string& name, ParamRole role, Shape shape, int partition_dim,
           RowBlocks blocks = {}) {
    model_.params.push_back(
        {{prefix_ + name, role, std::move(shape), std::move(blocks), partition_dim},
         layer_,
         expert_});
  }
  // A bias is cut with the rows of its matrix.
  void linear(const std::string& name, int64_t out, int64_t in, int partition_dim, bool bias) {
    add(name + ".weight", ParamRole::kMatrix, {out, in}, partition_dim);
    if (bias)
      add(name + ".bias", ParamRole::kBias, {out}, partition_dim == kRows ? kRows : kReplicated);
  }
  void norm(const std::string& name, int64_t features) {
    add(name + ".weight", ParamRole::kNorm, {features}, kReplicated);
  }

 private:
  PlanModel& model_;
  int64_t layer_ = 0;
  std::string prefix_;
  int64_t expert_ = -1;
};

void add_attention(Builder& b, const DecoderShape& s) {
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  b.linear("self_attn.q_proj", q, s.hidden, kRows, s.qkv_bias);
  b.linear("self_attn.k_proj", kv, s.hidden, kRows, s.qkv_bias);
  b.linear("self_attn.v_proj", kv, s.hidden, kRows, s.qkv_bias);
  b.linear("self_attn.o_proj", s.hidden, q, kColumns, s.output_bias);
  if (!s.qk_norm) return;
  b.norm("self_attn.q_norm", s.head_dim);
  b.norm("self_attn.k_norm", s.head_dim);
}

void add_mlp(Builder& b, const DecoderShape& s) {
  b.linear("gate_proj", s.intermediate, s.hidden, kRows, s.mlp_bias);
  b.linear("up_proj", s.intermediate, s.hidden, kRows, s.mlp_bias);
  b.linear("down_proj", s.hidden, s.intermediate, kColumns, s.mlp_bias);
}

void add_layer(Builder& b, const DecoderShape& s, int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  b.enter(layer, prefix);
  add_attention(b, s);
  if (s.experts == 0) {
    b.enter(layer, prefix + "mlp.");
    add_mlp(b, s);
  } else {
    b.add("mlp.gate.weight", ParamRole::kRouter, {s.experts, s.hidden}, kReplicated);
    for (int64_t expert = 0; expert < s.experts; ++expert) {
      b.enter(layer, fmt::format("{}mlp.experts.{}.", prefix, expert), expert);
      add_mlp(b, s);
    }
  }
  b.enter(layer, prefix);
  b.norm("input_layernorm", s.hidden);
  b.norm("post_attention_layernorm", s.hidden);
}

PlanModel gpt2_small() {
  constexpr int64_t kHidden = 768, kHeads = 12, kLayers = 12, kVocab = 50257, kPositions = 1024;
  PlanModel model{"gpt2-small", {}, kLayers, kHeads, kHeads, 0, true};
  Builder b(model);
  auto norm = [&](const std::string& name) {
    b.norm(name, kHidden);
    b.add(name + ".bias", ParamRole::kBias, {kHidden}, kReplicated);
  };
  b.enter(kBeforeLayers, "transformer.");
  b.add("wte.weight", ParamRole::kEmbedding, {kVocab, kHidden}, kRows);
  b.add("wpe.weight", ParamRole::kPositionEmbedding, {kPositions, kHidden}, kReplicated);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    b.enter(layer, fmt::format("transformer.h.{}.", layer));
    norm("ln_1");
    b.add("attn.c_attn.weight", ParamRole::kMatrix, {3 * kHidden, kHidden}, kRows,
          {{kHidden, kHidden, kHidden}});
    b.add("attn.c_attn.bias", ParamRole::kBias, {3 * kHidden}, kRows);
    b.linear("attn.c_proj", kHidden, kHidden, kColumns, true);
    norm("ln_2");
    b.linear("mlp.c_fc", 4 * kHidden, kHidden, kRows, true);
    b.linear("mlp.c_proj", kHidden, 4 * kHidden, kColumns, true);
  }
  b.enter(kAfterLayers, "transformer.");
  norm("ln_f");
  return model;
}

PlanModel llama_1b() {
  DecoderShape s;
  s.vocab = 128256;
  s.hidden = 2048;
  s.intermediate = 8192;
  s.layers = 16;
  s.heads = 32;
  s.kv_heads = 8;
  s.head_dim = 64;
  s.tied_embeddings = true;
  return plan_decoder("llama-1b", s);
}

PlanModel qwen3_30b_a3b() {
  DecoderShape s;
  s.vocab = 151936;
  s.hidden = 2048;
  s.intermediate = 768;
  s.layers = 48;
  s.heads = 32;
  s.kv_heads = 4;
  s.head_dim = 128;
  s.experts = 128;
  s.qk_norm = true;
  PlanModel model = plan_decoder("qwen3-30b-a3b", s);
  model.routing = {{R"(model\.layers\.\d+\.mlp\.gate\.weight)", "muon"}};
  return model;
}

struct NamedModel {
  const char* name;
  PlanModel (*make)();
};
constexpr NamedModel kModels[] = {
    {"gpt2-small", gpt2_small}, {"llama-1b", llama_1b}, {"qwen3-30b-a3b", qwen3_30b_a3b}};

}  // namespace

int64_t PlanModel::numel() const {
  int64_t sum = 0;
  for (const PlanParam& p : params)
    sum +=
        std::accumulate(p.spec.shape.begin(), p.spec.shape.end(), int64_t{1}, std::multiplies<>());
  return sum;
}

PlanModel plan_decoder(std::string name, const DecoderShape& s) {
  PlanModel model{std::move(name), {}, s.layers, s.heads, s.kv_heads, s.experts, s.tied_embeddings};
  Builder b(model);
  b.enter(kBeforeLayers, "");
  b.add("model.embed_tokens.weight", ParamRole::kEmbedding, {s.vocab, s.hidden}, kRows);
  for (int64_t layer = 0; layer < s.layers; ++layer) add_layer(b, s, layer);
  b.enter(kAfterLayers, "");
  b.norm("model.norm", s.hidden);
  if (!s.tied_embeddings) b.add("lm_head.weight", ParamRole::kOutput, {s.vocab, s.hidden}, kRows);
  return model;
}

PlanModel plan_model(std::string_view name) {
  for (const NamedModel& model : kModels)
    if (name == model.name) return model.make();
  const std::string near = nearest_name(name, plan_model_names());
  fail("model '{}' is not known to the planner: it knows {}{}", name,
       fmt::join(plan_model_names(), ", "),
       near.empty() ? "" : fmt::format("; did you mean {}?", near));
}

std::vector<std::string> plan_model_names() {
  std::vector<std::string> names;
  for (const NamedModel& model : kModels) names.emplace_back(model.name);
  return names;
}

}  // namespace muoncore::parallel
