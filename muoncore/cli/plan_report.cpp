#include "muoncore/cli/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

namespace muoncore::cli {
namespace {

using parallel::ArmPlan;
using parallel::Imbalance;
using parallel::ParallelSizes;
using parallel::Plan;
using parallel::RankBytes;
using Json = nlohmann::ordered_json;

struct Category {
  const char* name;
  std::function<int64_t(const RankBytes&)> bytes;
};

const std::vector<Category>& categories() {
  static const std::vector<Category> kCategories{
      {"parameters", [](const RankBytes& b) { return b.parameters; }},
      {"gradients", [](const RankBytes& b) { return b.gradients; }},
      {"masters", [](const RankBytes& b) { return b.masters; }},
      {"momentum", [](const RankBytes& b) { return b.momentum; }},
      {"exp_avg", [](const RankBytes& b) { return b.exp_avg; }},
      {"exp_avg_sq", [](const RankBytes& b) { return b.exp_avg_sq; }},
      {"optimizer", [](const RankBytes& b) { return b.optimizer(); }},
      {"total", [](const RankBytes& b) { return b.total(); }}};
  return kCategories;
}

struct OverRanks {
  double mean = 0;
  int64_t worst = 0;
};

OverRanks over_ranks(const std::vector<int64_t>& values) {
  OverRanks out;
  for (int64_t value : values) {
    out.mean += static_cast<double>(value) / static_cast<double>(values.size());
    out.worst = std::max(out.worst, value);
  }
  return out;
}

OverRanks over_ranks(const ArmPlan& arm, const Category& category) {
  std::vector<int64_t> values;
  for (const RankBytes& bytes : arm.bytes) values.push_back(category.bytes(bytes));
  return over_ranks(values);
}

// 12,345,678
std::string grouped(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string sizes_text(const ParallelSizes& s, const parallel::PlanModel& model) {
  std::string text = fmt::format("{} (dp {} * tp {} * pp {})", s.world(), s.dp, s.tp, s.pp);
  if (model.experts > 0)
    text += fmt::format(", experts: ep {}, etp {}, expert dp {}", s.ep, s.etp, s.expert_dp());
  return text;
}

std::string imbalance_text(const Plan& plan) {
  std::string text = fmt::format("{:<44}{:>10}{:>18}\n", "Newton-Schulz work of a step",
                                 "max / mean", "cannot be below");
  auto row = [&](const char* name, const Imbalance& value) {
    text += fmt::format("  {:<42}{:>10.3f}{:>18.3f}\n", name, value.imbalance, value.bound);
  };
  row("parameters as stored (ns_imbalance)", plan.ns);
  row("matrices as split (ns_imbalance_actual)", plan.ns_actual);
  row("Megatron's measure, max * min^2", plan.ns_upstream);
  return text;
}

std::string bytes_text(const Plan& plan) {
  constexpr double kMib = 1 << 20, kGib = 1 << 30;
  const bool large = over_ranks(plan.adamw, categories().back()).mean >= kGib;
  const double unit = large ? kGib : kMib;
  std::string text = fmt::format(
      "{:<18}{:>26}{:>26}\n{:<18}{:>13}{:>13}{:>13}{:>13}\n", "", "AdamW alone", "Muon and AdamW",
      large ? "GiB per rank" : "MiB per rank", "mean", "worst rank", "mean", "worst rank");
  auto row = [&](const char* name, const OverRanks& adamw, const OverRanks& muon) {
    text += fmt::format("  {:<16}", name);
    for (const OverRanks& arm : {adamw, muon})
      text +=
          fmt::format("{:>13.3f}{:>13.3f}", arm.mean / unit, static_cast<double>(arm.worst) / unit);
    text += '\n';
  };
  for (const Category& category : categories())
    row(category.name, over_ranks(plan.adamw, category), over_ranks(plan.muon, category));
  row("sent in a step", over_ranks(plan.adamw.sent), over_ranks(plan.muon.sent));
  return text;
}

// What the numbers alone would not say.
std::string notes_text(const parallel::PlanModel& model, const parallel::PlanOptions& options,
                       const Plan& plan) {
  std::string text;
  const auto ranks = static_cast<int64_t>(plan.muon.bytes.size());
  if (plan.ns.bound > 1.005)
    text += fmt::format(
        "note: too few matrices to share out evenly: {} for {} ranks; no layout comes below {:.3f} "
        "times the mean\n",
        grouped(plan.muon_matrices), ranks, plan.ns.bound);
  if (plan.ranks_without_matrices > 0)
    text += fmt::format("note: {} of {} ranks own no matrix and update AdamW's parameters only\n",
                        plan.ranks_without_matrices, ranks);
  if (model.routing.size() > 0 && model.experts > 0)
    text +=
        "note: the routers go to Muon here, as in Megatron-Core; our own rule sends them to "
        "AdamW (--router adam)\n";
  if (options.sizes.tp > 1)
    text +=
        "note: every tensor-parallel rank orthogonalizes whole matrices (muon_tp_mode "
        "duplicated); what that sends is not counted\n";
  return text;
}

Json imbalances_json(const Plan& plan) {
  return {{"ns_imbalance", plan.ns.imbalance},
          {"ns_imbalance_bound", plan.ns.bound},
          {"ns_imbalance_actual", plan.ns_actual.imbalance},
          {"ns_imbalance_actual_bound", plan.ns_actual.bound},
          {"ns_imbalance_megatron", plan.ns_upstream.imbalance},
          {"ns_imbalance_megatron_bound", plan.ns_upstream.bound},
          {"padding_fraction", plan.padding_fraction},
          {"padding_fraction_adamw", plan.padding_fraction_cut}};
}

Json over_ranks_json(const OverRanks& value) {
  return {{"mean", value.mean}, {"worst", value.worst}};
}

Json arm_json(const ArmPlan& arm) {
  Json json;
  for (const Category& category : categories())
    json[category.name] = over_ranks_json(over_ranks(arm, category));
  return json;
}

}  // namespace

std::string plan_text(const parallel::PlanModel& model, const parallel::PlanOptions& options,
                      const Plan& plan) {
  std::string text;
  text += fmt::format("model    {}: {} parameters; Muon updates {} of them, in {} matrices\n",
                      model.name, grouped(plan.params), grouped(plan.muon_params),
                      grouped(plan.muon_matrices));
  text += fmt::format("ranks    {}\n", sizes_text(options.sizes, model));
  text += fmt::format("layout   {}, {}, hash {:016x}\n", to_string(options.layout),
                      options.bucket_size
                          ? fmt::format("buckets of {} elements", grouped(*options.bucket_size))
                          : "one bucket",
                      plan.layout_hash);
  text += fmt::format("padding  {:.2f} % of Muon's buffers, {:.2f} % of AdamW's\n\n",
                      100 * plan.padding_fraction, 100 * plan.padding_fraction_cut);
  text += fmt::format("{}\n{}", imbalance_text(plan), bytes_text(plan));
  text +=
      fmt::format("\nAdamW minus Muon: {:.2f} GiB per rank (mean)\n", plan.adamw_minus_muon_gib);
  text += notes_text(model, options, plan);
  return text;
}

nlohmann::ordered_json plan_json(const parallel::PlanModel& model,
                                 const parallel::PlanOptions& options, const Plan& plan) {
  const ParallelSizes& s = options.sizes;
  Json json{{"model", model.name},
            {"layout", to_string(options.layout)},
            {"layout_hash", fmt::format("{:016x}", plan.layout_hash)},
            {"world", s.world()},
            {"dp", s.dp},
            {"tp", s.tp},
            {"ep", s.ep},
            {"pp", s.pp},
            {"etp", s.etp},
            {"expert_dp", s.expert_dp()},
            {"bucket_size", options.bucket_size ? Json(*options.bucket_size) : Json()},
            {"parameters", plan.params},
            {"muon_parameters", plan.muon_params},
            {"muon_matrices", plan.muon_matrices},
            {"ranks_without_matrices", plan.ranks_without_matrices}};
  json.update(imbalances_json(plan));
  json["adamw_minus_muon_gib"] = plan.adamw_minus_muon_gib;
  json["bytes_per_rank"] = {{"adamw", arm_json(plan.adamw)}, {"muon", arm_json(plan.muon)}};
  json["bytes_sent_per_step"] = {{"adamw", over_ranks_json(over_ranks(plan.adamw.sent))},
                                 {"muon", over_ranks_json(over_ranks(plan.muon.sent))}};
  return json;
}

}  // namespace muoncore::cli
