#include "muoncore/train/startup_report.h"

#include <fmt/format.h>

#include "muoncore/core/timer.h"
#include "muoncore/models/hf.h"
#include "muoncore/optim/routing.h"

namespace muoncore::train {
namespace {

int64_t weight_bytes(const models::CausalLM& model) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : model.named_params()) {
    bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
  }
  return bytes;
}

int64_t elements(const optim::ChainedOptimizer& optimizer, const std::string& name) {
  const auto counts = optimizer.elements_by_optimizer();
  const auto it = counts.find(name);
  return it == counts.end() ? 0 : it->second;
}

std::string groups_text(const optim::ChainedOptimizer& optimizer) {
  std::string text;
  for (const auto& group : optimizer.param_groups()) {
    text += fmt::format("  group {:<14} {:>3} tensors, lr {:g} to {:g}, weight decay x{:g}\n",
                        group.name, group.params.size(), group.schedule.max_lr,
                        group.schedule.min_lr, group.schedule.wd_mult);
  }
  return text;
}

std::string memory_text(const MemoryPlan& plan) {
  std::string text = "memory, without activations and rollouts:\n";
  const auto line = [&](const char* what, int64_t bytes) {
    if (bytes > 0) {
      text += fmt::format("  {:<16} {:>15} bytes ({})\n", what, format_count(bytes),
                          format_bytes(bytes));
    }
  };
  line("weights", plan.weights);
  line("gradients", plan.gradients);
  line("fp32 masters", plan.masters);
  line("optimizer state", plan.optimizer_state);
  line("reference", plan.reference);
  line("total", plan.total());
  return text;
}

std::string optimizer_text(const optim::ChainedOptimizer& optimizer) {
  std::string text = "parameters by optimizer:\n";
  for (const auto& [name, count] : optimizer.elements_by_optimizer()) {
    text += fmt::format("  {:<5} {:>15} elements\n", name, format_count(count));
  }
  text += groups_text(optimizer);
  if (elements(optimizer, "muon") > 0) {
    text += fmt::format("  Muon's resolved factor: {:.6g}\n", optimizer.extra_scale_factor());
  }
  return text + "routing:\n" + optim::to_string(optimizer.routing());
}

}  // namespace

int64_t MemoryPlan::total() const {
  return weights + gradients + masters + optimizer_state + reference;
}

MemoryPlan plan_memory(const models::CausalLM& model, const optim::ChainedOptimizer& optimizer,
                       bool with_reference) {
  MemoryPlan plan;
  plan.weights = weight_bytes(model);
  plan.gradients = plan.weights;
  plan.masters = optimizer.master_bytes();
  plan.optimizer_state = 4 * elements(optimizer, "muon") + 8 * elements(optimizer, "adam");
  plan.reference = with_reference ? plan.weights : 0;
  return plan;
}

std::string startup_report(const StartupFacts& facts, const models::CausalLM& model,
                           const optim::ChainedOptimizer& optimizer) {
  const models::ModelConfig& c = model.config();
  std::string text =
      fmt::format("{}: {} steps into {}\n", facts.command, facts.total_steps, facts.run_dir);
  text += fmt::format("device {}, {} thread{}, {}\n", facts.device.str(), facts.threads,
                      facts.threads == 1 ? "" : "s", models::dtype_name(model.dtype()));
  text += fmt::format(
      "model: {}, {} layers, hidden {}, MLP {}, {} heads / {} KV heads of {}, "
      "vocabulary {}{}\n",
      c.model_type, c.num_hidden_layers, c.hidden_size, c.intermediate_size, c.num_attention_heads,
      c.num_key_value_heads, c.head_dim, c.vocab_size,
      c.tie_word_embeddings ? ", tied embeddings" : "");
  text += fmt::format("  {} parameters from {}\n", format_count(c.parameter_count()),
                      facts.model_source);
  text += optimizer_text(optimizer);
  text += memory_text(plan_memory(model, optimizer, facts.with_reference));
  text.pop_back();  // the log ends the line
  return text;
}

nlohmann::json startup_json(const StartupFacts& facts, const models::CausalLM& model,
                            const optim::ChainedOptimizer& optimizer) {
  const MemoryPlan plan = plan_memory(model, optimizer, facts.with_reference);
  nlohmann::json routing = nlohmann::json::array();
  for (const auto& route : optimizer.routing()) {
    routing.push_back({{"name", route.name}, {"optimizer", route.optimizer}, {"why", route.why}});
    if (!route.layout.empty()) routing.back()["layout"] = route.layout;
  }
  return {{"device", facts.device.str()},
          {"threads", facts.threads},
          {"model",
           {{"source", facts.model_source},
            {"parameters", model.config().parameter_count()},
            {"dtype", models::dtype_name(model.dtype())}}},
          {"elements_by_optimizer", optimizer.elements_by_optimizer()},
          {"memory_bytes",
           {{"weights", plan.weights},
            {"gradients", plan.gradients},
            {"masters", plan.masters},
            {"optimizer_state", plan.optimizer_state},
            {"reference", plan.reference}}},
          {"routing", routing}};
}

}  // namespace muoncore::train
