// What upstream refuses, and what it accepts, case by case. We may refuse more ("stricter") and
// support more ("wider").
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "muoncore/cli/parity_groups.h"
#include "muoncore/core/check.h"
#include "muoncore/muon/matrix_blocks.h"
#include "muoncore/muon/reference.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/optim/muon.h"
#include "muoncore/optim/optimizer_config.h"
#include "muoncore/train/config.h"

namespace muoncore::cli {
namespace {

using Action = std::function<void()>;  // throws Error where we refuse; and where a result is wrong,
                                       // std::logic_error

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

// Not symmetric, of full rank, with exact bf16 values.
at::Tensor sample(at::IntArrayRef shape, at::ScalarType dtype) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return at::arange(n, at::kDouble).mul(2.399963).sin().to(at::kBFloat16).reshape(shape).to(dtype);
}

void orthogonalize(at::IntArrayRef shape, at::ScalarType dtype, double tolerance) {
  muon::NewtonSchulzOptions o;
  at::Tensor x = sample(shape, dtype);
  require(distance(muon::newton_schulz(x, o), muon::reference::newton_schulz(x, o), tolerance,
                   tolerance)
              .within(),
          "differs from the fp64 reference");
}

void with_type(const std::string& type, int64_t steps = 5) {
  muon::NewtonSchulzOptions o;
  o.coefficient_type = type;
  o.steps = steps;
  muon::newton_schulz(at::ones({4, 4}), o);
}

// One step of Muon without decay on a parameter of ones; checks the update against the fp64
// reference.
void step(optim::MuonOptions options, at::IntArrayRef shape = {4, 6},
          at::ScalarType dtype = at::kFloat, bool with_grad = true, bool with_closure = false) {
  at::Tensor p = at::ones(shape, dtype).requires_grad_();
  options.weight_decay(0.0).fp32_matmul_prec("highest");
  optim::Muon muon(std::vector<at::Tensor>{p}, options);
  at::Tensor g = sample(shape, dtype);
  auto set_grad = [&] {
    p.mutable_grad() = g;
    return g.sum();
  };
  if (with_grad && !with_closure) set_grad();
  at::Tensor loss = with_closure ? muon.step(set_grad) : muon.step();
  require(!with_closure || loss.equal(g.sum()), "the closure's loss was not returned");
  at::Tensor expected = at::ones(shape, at::kDouble);
  if (with_grad) {
    const double scale =
        muon::scale_factor(muon::ScaleMode::kSpectral, shape[shape.size() - 2], shape.back());
    expected -= options.lr() * scale * muon::reference::newton_schulz(g, {});
  }
  const double tolerance = dtype == at::kBFloat16 ? 4e-3 : 1e-5;
  require(distance(p, expected, tolerance, 0).within(), "the step differs from the fp64 reference");
}

void accepts(const std::function<void(optim::MuonOptions&)>& change) {
  optim::MuonOptions o;
  change(o);
  step(o);
}

void split(int64_t rows, const RowBlocks& blocks) {
  muon::check_blocks(blocks, rows, "linear_qkv.weight");
}

// There is no use_syrk here: the config must refuse the key by its name.
void ask_for_syrk() {
  try {
    train::load_config(train::ConfigKind::kGrpo, {},
                       {"actor_rollout_ref.actor.optim.muon_use_syrk=True"});
  } catch (const Error& e) {
    require(std::string_view(e.what()).find("muon_use_syrk") != std::string_view::npos, e.what());
    throw;
  }
}

void validate_bad_scale_mode() {
  optim::OptimizerConfig config;
  config.optimizer = "muon";
  config.muon_scale_mode = "x";
  optim::validate(config);
}

using Actions = std::map<std::string, Action>;

Actions function_actions() {
  const std::vector<int64_t> wide{12, 20}, line{4}, four{1, 1, 4, 4};
  const RowBlocks qkv{{4, 2, 2}, false}, missing{{}, true};
  return {
      {"newton_schulz 1-D", [=] { orthogonalize(line, at::kFloat, 1e-5); }},
      {"newton_schulz 4-D", [=] { orthogonalize(four, at::kFloat, 1e-5); }},
      {"newton_schulz bf16 input", [=] { orthogonalize(wide, at::kBFloat16, 4e-3); }},
      {"newton_schulz fp64 input", [=] { orthogonalize(wide, at::kDouble, 1e-12); }},
      {"newton_schulz unknown coefficients", [] { with_type("nope"); }},
      {"newton_schulz custom without sets", [] { with_type("custom"); }},
      {"newton_schulz custom empty sets",
       [] { muon::iterate_coefficients({}, muon::IterationMode::kCycle, 5); }},
      {"newton_schulz steps=0", [] { with_type("quintic", 0); }},
      {"get_coefficient_iterator bad mode", [] { muon::parse_iteration_mode("x"); }},
      {"scale factor unknown mode", [] { muon::parse_scale_mode("x"); }},
      {"validate_coefficient_type bad", [] { muon::coefficient_set("x"); }},
      {"TensorParallelMuon qkv shape mismatch", [=] { split(10, qkv); }},
      {"TensorParallelMuon qkv shapes missing", [=] { split(10, missing); }},
      {"OptimizerConfig muon fields accept anything (no validation)", validate_bad_scale_mode},
      {"Muon use_syrk=True on CPU falls back", ask_for_syrk},
  };
}

Actions optimizer_actions() {
  using O = optim::MuonOptions;
  const std::vector<int64_t> matrix{4, 6}, batch{3, 4, 6}, line{4};
  const Action one_dimensional = [=] { step({}, line); };
  const Action three_dimensional = [=] { step({}, batch); };
  const Action no_steps = [] { accepts([](O& o) { o.num_ns_steps(0); }); };
  const Action negative_lr = [] { accepts([](O& o) { o.lr(-1.0); }); };
  return {
      {"Muon num_ns_steps=0", no_steps},
      {"Muon bad weight decay method (raises at step)",
       [] { accepts([](O& o) { o.weight_decay_method("x"); }); }},
      {"Muon bad weight decay method, wd=0 (no error)",
       [] { accepts([](O& o) { o.weight_decay_method("x").weight_decay(0.0); }); }},
      {"Muon 1-D param at step", one_dimensional},
      {"Muon 3-D param at step", three_dimensional},
      {"Muon bf16 param at step", [=] { step({}, matrix, at::kBFloat16); }},
      {"Muon closure", [=] { step({}, matrix, at::kFloat, true, true); }},
      {"Muon bad coefficient type raises at step",
       [] { accepts([](O& o) { o.coefficient_type("x"); }); }},
      {"Muon negative lr accepted", negative_lr},
      {"Muon momentum=2 accepted", [] { accepts([](O& o) { o.momentum(2.0); }); }},
      {"Muon param without grad is skipped", [=] { step({}, matrix, at::kFloat, false); }},
      {"TensorParallelMuon num_ns_steps=0", no_steps},
      {"TensorParallelMuon 3-D param (not rejected: no ndim check in its orthogonalize)",
       three_dimensional},
      {"TensorParallelMuon 1-D param", one_dimensional},
      {"torch.optim.Muon 1-D param", one_dimensional},
      {"torch.optim.Muon negative lr", negative_lr},
      {"torch.optim.Muon bad adjust_lr_fn", [] { accepts([](O& o) { o.scale_mode("x"); }); }},
      {"torch.optim.Muon ns_steps=100", [] { accepts([](O& o) { o.num_ns_steps(100); }); }},
  };
}

// What upstream refuses and we support, each checked against the fp64 reference by its action.
const std::vector<std::string> kWider{"newton_schulz bf16 input", "newton_schulz fp64 input",
                                      "Muon 3-D param at step", "Muon bf16 param at step",
                                      "Muon closure"};

void judge(GroupReport& report, const std::string& name, bool upstream_refuses,
           const Action& action) {
  bool refused = false;
  try {
    action();
  } catch (const Error&) {
    refused = true;
  } catch (const std::exception& e) {
    return report.add(Verdict::kFailed, name, e.what());
  }
  const bool listed = std::find(kWider.begin(), kWider.end(), name) != kWider.end();
  if (refused == upstream_refuses)
    report.add(Verdict::kPassed, name);
  else if (refused)
    report.add(Verdict::kStricter, name);
  else
    report.add(listed ? Verdict::kWider : Verdict::kFailed, name,
               listed ? "" : "accepted, but upstream refuses it");
}

}  // namespace

GroupReport replay_errors(const GoldenFolder& golden, const UpstreamProfile&) {
  GroupReport report("errors");
  Actions table = function_actions();
  table.merge(optimizer_actions());
  for (const auto& row : golden.group("errors").at("rows")) {
    const std::string name = row.at("case");
    auto it = table.find(name);
    if (it == table.end())
      report.skip(name, "'" + name + "': there is no such option here");
    else
      judge(report, name, !row.at("raises").is_null(), it->second);
  }
  return report;
}

}  // namespace muoncore::cli
