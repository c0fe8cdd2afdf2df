// Models as the planner sees them: every parameter's name, role and shape, and where parallelism
// may cut, as data. No weights, no tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muoncore/core/param_spec.h"
#include "muoncore/optim/routing.h"

namespace muoncore::parallel {

// `layer`: the transformer layer it belongs to, or one of these two.
constexpr int64_t kBeforeLayers = -1;  // token and position embeddings: first pipeline stage
constexpr int64_t kAfterLayers = -2;   // last norm, output layer: last pipeline stage

struct PlanParam {
  ParamSpec spec;  // logical shape; partition_dim is what tensor parallelism cuts
  int64_t layer = 0;
  int64_t expert = -1;  // which expert of its layer; -1: dense
};

struct PlanModel {
  std::string name;
  std::vector<PlanParam> params;  // forward order
  int64_t layers = 0, heads = 0, kv_heads = 0;
  int64_t experts = 0;  // 0: a dense model
  bool tied_embeddings = false;
  // Exceptions to routing.h that the model's recipe makes.
  std::vector<optim::RoutingRule> routing = {};
  int64_t numel() const;
};

// A decoder in Hugging Face's layout (Llama, Qwen2, Qwen3, SmolLM2, Qwen3-MoE): q, k, v, gate and
// up are parameters of their own, and so is every expert's matrix.
struct DecoderShape {
  int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t experts = 0;  // > 0: every layer's MLP is `experts` MLPs of `intermediate` and a router
  bool tied_embeddings = false, qk_norm = false;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
};
PlanModel plan_decoder(std::string name, const DecoderShape& shape);

// gpt2-small: 124,439,808 parameters, the output layer tied; matrices [out, in] as Megatron keeps
// them, query, key and value fused. llama-1b: Llama-3.2-1B, 1,235,814,400, tied. qwen3-30b-a3b:
// 30,532,122,624, 128 experts a layer; its routers go to Muon, as in Megatron-Core, whose runs with
// this model are the ones to compare with. Throws Error naming the nearest on another name.
PlanModel plan_model(std::string_view name);
std::vector<std::string> plan_model_names();

}  // namespace muoncore::parallel
