// The whole optimizer of a model: Muon and AdamW under one step, one global gradient norm and one
// clip coefficient.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muoncore/optim/managed_optimizer.h"
#include "muoncore/optim/named_param.h"
#include "muoncore/optim/param_scheduler.h"
#include "muoncore/optim/routing.h"

namespace muoncore::optim {

struct StepResult {
  bool skipped = false;           // a gradient was not finite; nothing was touched
  double grad_norm = 0.0;         // global L2 norm before clipping; inf or NaN when skipped
  double clip_coefficient = 1.0;  // what gradients were multiplied with; 0 when skipped
  int64_t ns_calls = 0;           // logical matrices orthogonalized
  // "muon", "adam", "lion": RMS of update / lr; empty when skipped or not measured
  std::map<std::string, double> update_rms;
  // Muon's extra scale factor in this step, its mean over the elements updated where it differs
  // between parameters; none when skipped or without Muon
  std::optional<double> extra_scale_factor;
};

// One parameter group: its schedule and its place. `name`: "muon", "adam", "adam_no_decay".
struct ChainedGroup {
  std::string name;
  GroupSchedule schedule;
  ManagedOptimizer* optimizer = nullptr;
  size_t index = 0;                 // among the optimizer's param_groups()
  std::vector<std::string> params;  // names, in order

  double lr() const;
  void set_lr(double lr);
  double weight_decay() const;
  void set_weight_decay(double weight_decay);
};

// One optimizer of the chain.
struct ChainedChild {
  std::string name;  // "muon", "adam"
  std::unique_ptr<ManagedOptimizer> optimizer;
};

// Built by build_optimizer (build.h). Not movable once a scheduler holds it.
class ChainedOptimizer {
 public:
  struct Parts {
    std::vector<NamedParam> params;  // the model's tensors
    // one per parameter: an fp32 leaf for a bf16 parameter, else the tensor itself
    std::vector<at::Tensor> masters;
    std::vector<Route> routes;  // one per parameter
    // logical matrices of a parameter that Muon updates; 0 for AdamW's
    std::vector<int64_t> matrices;
    std::vector<ChainedChild> children;
    std::vector<ChainedGroup> groups;
    double clip_grad = 1.0;
    double extra_scale_factor = 1.0;  // Muon's, resolved; for reports
    bool measure_update_rms = true;
  };
  explicit ChainedOptimizer(Parts parts);
  ChainedOptimizer(const ChainedOptimizer&) = delete;
  ChainedOptimizer& operator=(const ChainedOptimizer&) = delete;

  // Norm over the gradients of all parameters, then every child with the clip coefficient, then
  // masters rounded once into bf16 parameters. Gradients are read only. A gradient that is not
  // finite skips the step: weights, masters, momentum and step counters keep their bytes. Throws
  // when Newton-Schulz did not run once for each logical matrix of Muon's that has a gradient.
  StepResult step();

  void zero_grad();  // drops every gradient

  // Multiplies the rows of one parameter (its elements, if it has one dimension) by `factors`
  // [rows], in the master where there is one, then rounded once into the parameter: for hooks of
  // the model behind a step, such as QK-clip. Throws on a name or a count that is not the
  // parameter's.
  void scale_rows(const std::string& name, const at::Tensor& factors);

  const std::vector<Route>& routing() const { return parts_.routes; }
  std::vector<ChainedGroup>& param_groups() { return parts_.groups; }
  const std::vector<ChainedGroup>& param_groups() const { return parts_.groups; }
  ManagedOptimizer* child(const std::string& name) const;  // "muon", "adam"; nullptr: not there

  int64_t state_bytes() const;  // momentum and moments of all children
  std::map<std::string, int64_t> state_bytes_by_optimizer() const;
  int64_t master_bytes() const;                                  // fp32 masters of bf16 parameters
  std::map<std::string, int64_t> elements_by_optimizer() const;  // parameters per optimizer
  double extra_scale_factor() const { return parts_.extra_scale_factor; }  // Muon's resolved factor

  // The whole state by parameter name: "optimizer.state.<what>.<parameter>" with what =
  // momentum_buffer, exp_avg, exp_avg_sq, step, fp32_param, and "optimizer.entries" (their number).
  // The tensors are aliases: write them before the next step. load_state copies, checks every key,
  // shape and dtype first, and throws before it changes anything; it writes bf16 parameters from
  // their masters.
  std::map<std::string, at::Tensor> state() const;
  void load_state(const std::map<std::string, at::Tensor>& state);

 private:
  std::vector<size_t> params_with_gradients() const;
  bool has_master(size_t i) const;
  ManagedOptimizer& owner(size_t i) const;  // of parameter i
  void lend_gradients(const std::vector<size_t>& stepped);
  void write_back(const std::vector<size_t>& stepped);
  void add_stats(const ChainedChild& child, StepResult& result) const;
  void check_orthogonalized(const std::vector<size_t>& stepped, int64_t calls) const;
  void put_state(size_t i, const ParamState& state);
  at::Tensor take_master(size_t i, ParamState& state) const;

  Parts parts_;
};

}  // namespace muoncore::optim
