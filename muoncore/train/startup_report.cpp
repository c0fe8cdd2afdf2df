#include "muoncore/train/startup_report.h"

#include <fmt/format.h>

#include "muoncore/core/timer.h"
#include "muoncore/models/hf.h"
#include "muoncore/optim/muon.h"
#include "muoncore/optim/routing.h"
#include "muoncore/train/memory_plan.h"

namespace muoncore::train {
namespace {

// Muon's constant factor, and what it is multiplied with in each step.
std::string factor_text(const optim::ChainedOptimizer& optimizer) {
  const auto& options = static_cast<const optim::MuonOptions&>(optimizer.child("muon")->defaults());
  if (options.hyperball()) return "  Muon's updates have lr times the norm of their matrix\n";
  if (options.adamw_match() != "none")
    return fmt::format("  Muon's factor is that of each step: {}\n", options.adamw_match());
  return fmt::format("  Muon's resolved factor: {:.6g}\n", optimizer.extra_scale_factor());
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

// Of the rank that holds most.
MemoryPlan largest_plan(const models::CausalLM& model, const parallel::WrappedModel& wrapped,
                        const StartupFacts& facts) {
  MemoryPlan largest;
  for (int64_t rank = 0; rank < facts.ranks; ++rank) {
    const MemoryPlan plan = plan_memory(model, wrapped, rank, facts.with_reference);
    if (plan.total() > largest.total()) largest = plan;
  }
  return largest;
}

int64_t state_of_all_ranks(const models::CausalLM& model, const parallel::WrappedModel& wrapped,
                           const StartupFacts& facts) {
  int64_t bytes = 0;
  for (int64_t rank = 0; rank < facts.ranks; ++rank)
    bytes += plan_memory(model, wrapped, rank, false).optimizer_state;
  return bytes;
}

int64_t buckets(const parallel::WrappedModel& wrapped) {
  int64_t count = 0;
  for (const auto& buffer : wrapped.plans.front())
    count += static_cast<int64_t>(buffer.layout.buckets.size());
  return count;
}

std::string ranks_text(const StartupFacts& facts, const parallel::WrappedModel& wrapped) {
  std::string text = fmt::format("{} ranks share every batch: {}, {} buckets in {} buffers\n",
                                 facts.ranks, parallel::to_string(wrapped.sharding),
                                 buckets(wrapped), wrapped.plans.front().size());
  for (const std::string& note : wrapped.notes) text += fmt::format("  {}\n", note);
  return text;
}

std::string memory_text(int64_t ranks, const MemoryPlan& plan) {
  std::string text = fmt::format("memory{}, without activations and rollouts:\n",
                                 ranks > 1 ? " of the rank that holds most" : "");
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
  if (elements(optimizer, "muon") > 0) text += factor_text(optimizer);
  return text + "routing:\n" + optim::to_string(optimizer.routing());
}

}  // namespace

std::string startup_report(const StartupFacts& facts, const models::CausalLM& model,
                           const parallel::WrappedModel& wrapped) {
  const models::ModelConfig& c = model.config();
  std::string text =
      fmt::format("{}: {} steps into {}\n", facts.command, facts.total_steps, facts.run_dir);
  text += fmt::format("device {}, {} thread{}{}, {}\n", facts.device.str(), facts.threads,
                      facts.threads == 1 ? "" : "s", facts.ranks > 1 ? " per rank" : "",
                      models::dtype_name(model.dtype()));
  text += fmt::format(
      "model: {}, {} layers, hidden {}, MLP {}, {} heads / {} KV heads of {}, "
      "vocabulary {}{}\n",
      c.model_type, c.num_hidden_layers, c.hidden_size, c.intermediate_size, c.num_attention_heads,
      c.num_key_value_heads, c.head_dim, c.vocab_size,
      c.tie_word_embeddings ? ", tied embeddings" : "");
  text += fmt::format("  {} parameters from {}\n", format_count(c.parameter_count()),
                      facts.model_source);
  text += optimizer_text(*wrapped.optimizer);
  if (facts.ranks > 1) text += ranks_text(facts, wrapped);
  text += memory_text(facts.ranks, largest_plan(model, wrapped, facts));
  text.pop_back();  // the log ends the line
  return text;
}

nlohmann::json startup_json(const StartupFacts& facts, const models::CausalLM& model,
                            const parallel::WrappedModel& wrapped) {
  const optim::ChainedOptimizer& optimizer = *wrapped.optimizer;
  const MemoryPlan plan = largest_plan(model, wrapped, facts);
  nlohmann::json routing = nlohmann::json::array();
  for (const auto& route : optimizer.routing()) {
    routing.push_back({{"name", route.name}, {"optimizer", route.optimizer}, {"why", route.why}});
    if (!route.layout.empty()) routing.back()["layout"] = route.layout;
  }
  return {{"device", facts.device.str()},
          {"threads", facts.threads},
          {"ranks", facts.ranks},
          {"sharding", parallel::to_string(wrapped.sharding)},
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
            {"optimizer_state_of_all_ranks", state_of_all_ranks(model, wrapped, facts)},
            {"reference", plan.reference}}},
          {"routing", routing}};
}

}  // namespace muoncore::train
