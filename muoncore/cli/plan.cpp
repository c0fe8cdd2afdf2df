// muoncore plan: what a run will cost each rank, at any world size, without starting one.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muoncore/cli/commands.h"
#include "muoncore/cli/plan_report.h"
#include "muoncore/core/check.h"
#include "muoncore/core/json_file.h"
#include "muoncore/data/char_tokenizer.h"
#include "muoncore/data/tokenizer.h"
#include "muoncore/models/config.h"
#include "muoncore/optim/matrix_layout.h"
#include "muoncore/train/config.h"
#include "muoncore/train/config_derived.h"
#include "muoncore/train/config_ranks.h"

namespace muoncore::cli {
namespace {

struct PlanArguments {
  std::string file, model, layout, dtype, router;
  std::vector<std::string> overrides;
  std::optional<int64_t> dp, bucket_size;
  int64_t tp = 1, ep = 1, pp = 1, etp = 1;
  bool json = false;
};

struct PlanInput {
  parallel::PlanModel model;
  parallel::PlanOptions options;
};

parallel::ElementSizes element_sizes(const std::string& dtype) {
  parallel::ElementSizes sizes;
  sizes.param = dtype == "float32" ? 4 : 2;
  return sizes;
}

int64_t vocabulary_of(const train::Config& config) {
  const std::string prefix = config.model_prefix();
  if (!config.is_null(prefix + ".config.vocab_size"))
    return config.integer(prefix + ".config.vocab_size");
  if (!config.is_null(prefix + ".tokenizer_path"))
    return data::load_tokenizer(config.text(prefix + ".tokenizer_path"))->vocab_size();
  return data::CharTokenizer().vocab_size();
}

// As the trainer makes it, from config.json or the config's own section; weights are not read.
models::ModelConfig model_config(const train::Config& config) {
  const std::string prefix = config.model_prefix();
  std::string file;
  if (!config.is_null(prefix + ".path"))
    file = std::filesystem::path(config.text(prefix + ".path")) / "config.json";
  else if (!config.is_null(prefix + ".hf_config_path"))
    file = config.text(prefix + ".hf_config_path");
  if (!file.empty()) return models::config_from_json(read_json(file), file);
  return models::config_from_json(train::model_config_json(config, vocabulary_of(config)),
                                  prefix + ".config");
}

parallel::DecoderShape decoder_shape(const models::ModelConfig& c) {
  parallel::DecoderShape shape;
  shape.vocab = c.vocab_size;
  shape.hidden = c.hidden_size;
  shape.intermediate = c.intermediate_size;
  shape.layers = c.num_hidden_layers;
  shape.heads = c.num_attention_heads;
  shape.kv_heads = c.num_key_value_heads;
  shape.head_dim = c.head_dim;
  shape.tied_embeddings = c.tie_word_embeddings;
  shape.qk_norm = c.qk_norm;
  shape.qkv_bias = c.qkv_bias;
  shape.output_bias = c.output_bias;
  shape.mlp_bias = c.mlp_bias;
  return shape;
}

// The ranks that trainer.nnodes and trainer.n_gpus_per_node ask for.
int64_t ranks_of(const train::Config& config) {
  int64_t ranks = 1;
  for (const char* key : {"trainer.nnodes", "trainer.n_gpus_per_node"})
    if (!config.is_null(key)) ranks *= config.integer(key);
  return ranks;
}

PlanInput from_config(const PlanArguments& a) {
  const train::ConfigKind kind = train::detect_kind(a.file);
  check(kind != train::ConfigKind::kCompare,
        "{}: a compare config plans several runs; give the grpo or sft config that it starts from",
        a.file);
  const train::Config config = train::load_config(kind, a.file, a.overrides);
  const optim::OptimizerConfig settings = train::optimizer_config(config, -1);
  const parallel::DistributedDataParallelConfig ddp = train::ddp_config(config);
  PlanInput input{parallel::plan_decoder(a.file, decoder_shape(model_config(config))), {}};
  input.model.routing = settings.routing_rules;
  std::vector<ParamSpec> specs;
  for (const parallel::PlanParam& param : input.model.params) specs.push_back(param.spec);
  specs = optim::lay_out(std::move(specs), settings.muon_matrix_layouts).specs;
  for (size_t i = 0; i < specs.size(); ++i) input.model.params[i].spec = std::move(specs[i]);

  parallel::PlanOptions& options = input.options;
  options.sizes.dp = ranks_of(config);
  options.layout = ddp.param_layout;
  options.bytes = element_sizes(config.text(config.engine_prefix() + ".dtype"));
  if (!ddp.grad_reduce_in_fp32) options.bytes.grad = options.bytes.param;
  options.bucket_size = ddp.bucket_size;
  if (!ddp.bucket_size && (ddp.overlap_grad_reduce || ddp.overlap_param_gather))
    options.bucket_size = parallel::default_bucket_size(a.dp.value_or(options.sizes.dp));
  options.split_blocks = settings.muon_split_qkv;
  return input;
}

PlanInput from_name(const PlanArguments& a) {
  PlanInput input{parallel::plan_model(a.model), {}};
  input.options.bucket_size = parallel::default_bucket_size(std::max<int64_t>(1, a.dp.value_or(1)));
  return input;
}

PlanInput read_input(const PlanArguments& a) {
  check(a.file.empty() != a.model.empty(), "plan needs either a config file or --model ({}), {}",
        fmt::join(parallel::plan_model_names(), ", "),
        a.file.empty() ? "and has none" : "not both");
  PlanInput input = a.file.empty() ? from_name(a) : from_config(a);
  parallel::PlanOptions& options = input.options;
  options.sizes = {a.dp.value_or(options.sizes.dp), a.tp, a.ep, a.pp, a.etp};
  if (!a.layout.empty()) options.layout = parallel::parse_layout_kind(a.layout);
  if (!a.dtype.empty()) options.bytes.param = element_sizes(a.dtype).param;
  if (a.bucket_size) options.bucket_size = a.bucket_size;
  if (!a.router.empty()) {
    check(input.model.experts > 0, "--router: {} has no experts and no routers", input.model.name);
    if (a.router == "adam") input.model.routing.clear();
  }
  return input;
}

void run(const PlanArguments& a) {
  const PlanInput input = read_input(a);
  const parallel::Plan plan = parallel::make_plan(input.model, input.options);
  if (a.json)
    std::cout << plan_json(input.model, input.options, plan).dump(2) << '\n';
  else
    std::cout << plan_text(input.model, input.options, plan);
}

}  // namespace

void add_plan(CLI::App& app) {
  auto args = std::make_shared<PlanArguments>();
  CLI::App* c = app.add_subcommand(
      "plan", "show who owns what, and what each rank stores and sends, at any number of ranks");
  c->add_option("file", args->file, "YAML file of a grpo or sft run")->type_name("CONFIG");
  c->add_option("overrides", args->overrides, "key.path=value ...");
  c->add_option(
      "--model", args->model,
      fmt::format("instead of a file: {}", fmt::join(parallel::plan_model_names(), ", ")));
  c->add_option("--dp", args->dp,
                "data-parallel ranks of the dense parameters; without it 1, or what the config's "
                "trainer.nnodes and n_gpus_per_node say");
  c->add_option("--tp", args->tp, "tensor-parallel ranks")->capture_default_str();
  c->add_option("--ep", args->ep, "ranks over which experts are spread")->capture_default_str();
  c->add_option("--pp", args->pp, "pipeline stages")->capture_default_str();
  c->add_option("--etp", args->etp, "tensor-parallel ranks of an expert")->capture_default_str();
  c->add_option("--layout", args->layout,
                "balanced or megatron; without it balanced, or the config's");
  c->add_option("--bucket-size", args->bucket_size,
                "elements; without it max(40e6, 1e6 * dp), or the config's");
  c->add_option("--dtype", args->dtype, "of parameters; without it bfloat16, or the config's")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  c->add_option("--router", args->router,
                "who updates the routers of a --model with experts; without it muon, as Megatron")
      ->check(CLI::IsMember({"muon", "adam"}));
  c->add_flag("--json", args->json, "one JSON object");
  c->callback([args] { run(*args); });
}

}  // namespace muoncore::cli
