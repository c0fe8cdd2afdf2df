#include "muoncore/models/causal_lm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"
#include "muoncore/models/decoder_layer.h"

namespace muoncore::models {
namespace {

using torch::nn::Module;

// A module that only carries names: "model", "layers", "embed_tokens", "lm_head".
std::shared_ptr<Module> named_node(Module& parent, const std::string& name) {
  return parent.register_module(name, std::make_shared<Module>(name));
}

void fill_normal(const at::Tensor& to, double standard_deviation, const CounterRng& rng) {
  at::Tensor values = at::empty({to.numel()}, at::kFloat);
  float* out = values.data_ptr<float>();
  at::parallel_for(0, values.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = static_cast<float>(standard_deviation * rng.normal(static_cast<uint64_t>(i)));
  });
  to.copy_(values.view(to.sizes()));
}

// With a cache: which of the `visible` cached tokens each of the T new ones sees.
at::Tensor visibility(const std::vector<int64_t>& lengths, int64_t tokens, int64_t visible) {
  at::Tensor last =
      at::tensor(lengths, at::kLong).view({-1, 1, 1, 1}) + at::arange(tokens).view({1, 1, -1, 1});
  return at::arange(visible) <= last;
}

}  // namespace

CausalLM::CausalLM(ModelConfig config, at::ScalarType dtype, at::Device device)
    : Module("CausalLM"), config_(std::move(config)), rope_(config_, dtype, device) {
  validate(config_);
  auto options = at::TensorOptions().dtype(dtype).device(device);
  auto body = named_node(*this, "model");
  auto table = [&](Module& node) {
    return node.register_parameter("weight",
                                   at::empty({config_.vocab_size, config_.hidden_size}, options));
  };
  embedding_ = table(*named_node(*body, "embed_tokens"));
  describe_param("model.embed_tokens.weight", ParamRole::kEmbedding, embedding_, specs_);
  auto stack = named_node(*body, "layers");
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    auto name = std::to_string(i);
    layers_.push_back(
        stack->register_module(name, std::make_shared<DecoderLayer>(config_, i, options)));
    layers_.back()->describe("model.layers." + name, specs_);
  }
  norm_ = body->register_module(
      "norm", std::make_shared<RmsNorm>(config_.hidden_size, config_.rms_norm_eps, options));
  norm_->describe("model.norm", specs_);
  head_ = embedding_;
  if (config_.tie_word_embeddings) return;
  head_ = table(*named_node(*this, "lm_head"));
  describe_param("lm_head.weight", ParamRole::kOutput, head_, specs_);
}

CausalLM::~CausalLM() = default;

void CausalLM::check_ids(const at::Tensor& ids) const {
  check(
      ids.dim() == 2 && ids.scalar_type() == at::kLong && ids.numel() > 0,
      "forward_hidden: ids must be int64 [rows, tokens], found {} of {} dimensions and {} elements",
      c10::toString(ids.scalar_type()), ids.dim(), ids.numel());
  if (!ids.is_cpu())
    return;  // a GPU would have to be waited for; its embedding asserts the range itself
  auto [low, high] = at::aminmax(ids);
  check(low.item<int64_t>() >= 0 && high.item<int64_t>() < config_.vocab_size,
        "forward_hidden: token id {} is outside the model's vocabulary of {}",
        low.item<int64_t>() < 0 ? low.item<int64_t>() : high.item<int64_t>(), config_.vocab_size);
}

at::Tensor CausalLM::forward_hidden(const at::Tensor& ids, KvCache* cache) {
  check_ids(ids);
  c10::AutoGradMode gradients(!cache && c10::GradMode::is_enabled());
  int64_t tokens = ids.size(1);
  ForwardContext context;
  context.cache = cache;
  context.watch = cache ? nullptr : watch_;
  if (!cache || cache->even()) {
    int64_t before = cache ? cache->lengths()[0] : 0;
    context.angles = rope_.range(before, tokens);
  } else {
    context.angles = rope_.rows(cache->lengths(), tokens);
  }
  if (cache) see_cache(ids, context);
  at::Tensor hidden = at::embedding(embedding_, ids);
  for (const auto& layer : layers_) hidden = layer->forward(hidden, context);
  if (cache) cache->advance(tokens);
  return norm_->forward(hidden);
}

void CausalLM::see_cache(const at::Tensor& ids, ForwardContext& context) const {
  const KvCache& cache = *context.cache;
  int64_t tokens = ids.size(1);
  check(cache.rows() == ids.size(0), "forward_hidden: {} rows of ids with a KV cache of {} rows",
        ids.size(0), cache.rows());
  context.visible = *std::max_element(cache.lengths().begin(), cache.lengths().end()) + tokens;
  bool empty = context.visible == tokens;
  context.causal = empty;
  if (!empty && !(cache.even() && tokens == 1))
    context.mask = visibility(cache.lengths(), tokens, context.visible).to(ids.device());
}

void CausalLM::set_watch(LogitWatch* watch) {
  check(!watch || !watch_, "a model's attention logits are watched by one LogitWatch at a time");
  watch_ = watch;
}

at::Tensor CausalLM::logits(const at::Tensor& hidden) { return at::linear(hidden, head_); }

std::vector<std::pair<std::string, at::Tensor>> CausalLM::named_params() const {
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const auto& item : named_parameters()) out.emplace_back(item.key(), item.value());
  return out;
}

void CausalLM::init_weights(uint64_t seed) {
  c10::NoGradGuard no_grad;
  auto params = named_parameters();
  for (const ParamSpec& spec : specs_) {
    at::Tensor& param = params[spec.name];
    if (spec.role == ParamRole::kNorm)
      param.fill_(1);
    else if (spec.role == ParamRole::kBias)
      param.fill_(0);
    else
      fill_normal(param, config_.initializer_range,
                  CounterRng({seed, hash_name("init"), hash_name(spec.name)}));
  }
}

}  // namespace muoncore::models
