// The whole optimizer of a model: Muon and AdamW under one step, one global gradient norm and one
// clip coefficient; on one rank or on many. What differs between the two is data: the pieces that
// this rank owns, and the exchange through which ranks act together (owned_piece.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "muoncore/optim/exact_sum.h"
#include "muoncore/optim/managed_optimizer.h"
#include "muoncore/optim/named_param.h"
#include "muoncore/optim/owned_piece.h"
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
  std::optional<double> extra_scale_factor = std::nullopt;
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
  std::string name;  // "muon", "adam", "lion"
  std::unique_ptr<ManagedOptimizer> optimizer;
};

// Built by build_optimizer (build.h). Not movable once a scheduler holds it.
class ChainedOptimizer {
 public:
  struct Parts {
    std::vector<NamedParam> params;  // the model's tensors on this rank
    std::vector<Route> routes;       // one per parameter
    std::vector<OwnedPiece> pieces;  // at most one per parameter
    std::vector<ChainedChild> children;
    std::vector<ChainedGroup> groups;
    // Indices of pieces in the order of their updates: while one phase is computed, the parameters
    // of the one before travel. As many on every rank. Empty: one phase with all.
    std::vector<std::vector<size_t>> phases;
    std::shared_ptr<StepExchange> exchange;  // none: one rank, gradients are the parameters' .grad
    double clip_grad = 1.0;
    double extra_scale_factor = 1.0;        // Muon's constant, resolved; for reports
    std::string scalar_optimizer = "adam";  // name of the child beside Muon
    bool muon_masters = true;               // false: bf16 matrices of Muon's have none
    bool measure_update_rms = true;
  };
  explicit ChainedOptimizer(Parts parts);
  ChainedOptimizer(const ChainedOptimizer&) = delete;
  ChainedOptimizer& operator=(const ChainedOptimizer&) = delete;

  // Norm over the gradients of all parameters, exact (exact_sum.h) and so the same on any number of
  // ranks; then every child with the clip coefficient; then masters rounded once into the
  // parameters. Gradients are read only. A gradient that is not finite, on any rank, skips the step
  // on all: weights, masters, momentum and step counters keep their bytes. Collective with an
  // exchange. Throws when Newton-Schulz did not run once for each logical matrix that this rank
  // owns and that has a gradient.
  StepResult step();

  void zero_grad();  // drops every gradient, or zeroes their buffers

  // Multiplies the rows of one parameter (its elements, if it has one dimension) by `factors`
  // [rows], in the master where there is one, then rounded once into the parameter: for hooks of
  // the model behind a step, such as QK-clip. Collective with an exchange: the same on all ranks.
  // Throws on a name or a count that is not the parameter's.
  void scale_rows(const std::string& name, const at::Tensor& factors);

  const std::vector<Route>& routing() const { return parts_.routes; }
  std::vector<ChainedGroup>& param_groups() { return parts_.groups; }
  const std::vector<ChainedGroup>& param_groups() const { return parts_.groups; }
  ManagedOptimizer* child(const std::string& name) const;  // "muon", "adam"; nullptr: not there

  // Of this rank: momentum and moments of all children.
  int64_t state_bytes() const;
  std::map<std::string, int64_t> state_bytes_by_optimizer() const;
  int64_t master_bytes() const;                                  // fp32 masters of bf16 parameters
  std::map<std::string, int64_t> elements_by_optimizer() const;  // parameters per optimizer
  // What `elements` of parameter `param` cost the rank that owns them, after a step: state and fp32
  // master. Muon's are whole parameters. By formula: the same on every rank, whoever owns what.
  int64_t elements(size_t param) const { return parts_.params.at(param).tensor.numel(); }
  int64_t planned_state_bytes(size_t param, int64_t elements) const;
  int64_t planned_master_bytes(size_t param, int64_t elements) const;
  double extra_scale_factor() const { return parts_.extra_scale_factor; }  // Muon's resolved factor

  // What this rank holds of the state: no copies. `what` as below.
  struct StateEntry {
    std::string what;
    OwnedPiece piece;  // where it belongs; master, grad and target are not set
    at::Tensor tensor;
  };
  std::vector<StateEntry> local_state() const;

  // The whole state by parameter name, of all ranks that share this rank's parameters:
  // "optimizer.state.<what>.<parameter>" with what = momentum_buffer, exp_avg, exp_avg_sq, step,
  // fp32_param, and "optimizer.entries" (their number). Tensors have their parameter's shape,
  // however they are cut here. One rank's are aliases: write them before the next step. Collective
  // with an exchange; every rank gets all.
  // load_state copies, checks every key, shape and dtype first, and throws before it changes
  // anything; it writes bf16 parameters from their masters. With an exchange each rank is given the
  // whole state, whatever number of ranks wrote it, and takes what it owns; collective: if one rank
  // refuses, all do.
  std::map<std::string, at::Tensor> state() const;
  void load_state(const std::map<std::string, at::Tensor>& state);

 private:
  struct Totals;

  bool has_gradient(const OwnedPiece& piece) const;
  bool has_master(size_t param) const;
  ManagedOptimizer& owner(size_t param) const;
  ExactSum sum_of_squares(const std::vector<bool>& stepped) const;
  std::optional<SquareSum> observe(const std::vector<bool>& stepped, double scale);
  void run_phase(const std::vector<size_t>& phase, const std::vector<bool>& stepped, double scale,
                 const std::optional<SquareSum>& observed, Totals& totals);
  void lend_gradient(const OwnedPiece& piece);
  void take_gradient_back(const OwnedPiece& piece);
  void write_back(const OwnedPiece& piece);
  void report(const std::vector<bool>& stepped, Totals& totals, StepResult& result) const;
  void put_state(const OwnedPiece& piece, const ParamState& state);
  at::Tensor take_master(size_t param, ParamState& state) const;
  std::vector<StateEntry> everyones_state() const;

  struct Loading;
  void read_state(const std::map<std::string, at::Tensor>& state, Loading& loading) const;
  void put_states(Loading& loading);
  void put_masters(const Loading& loading);

  Parts parts_;
};

}  // namespace muoncore::optim
