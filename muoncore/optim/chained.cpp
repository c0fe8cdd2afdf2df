#include "muoncore/optim/chained.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>

#include "muoncore/core/check.h"
#include "muoncore/optim/grad_norm.h"
#include "muoncore/optim/muon.h"

namespace muoncore::optim {
namespace {

// Numbers of all ranks added up in one exchange: integers as they are, doubles exactly.
void add_over_ranks(StepExchange& exchange, const std::vector<int64_t*>& counts,
                    const std::vector<double*>& sums) {
  std::vector<int64_t> record;
  for (const int64_t* count : counts) record.push_back(*count);
  for (const double* sum : sums) {
    ExactSum exact;
    exact.add(*sum);
    for (int64_t digit : exact.record()) record.push_back(digit);
  }
  exchange.sum(record);
  auto next = record.begin();
  for (int64_t* count : counts) *count = *next++;
  for (double* sum : sums) {
    *sum = ExactSum::from_record({next, next + ExactSum::kRecordSize}).value();
    next += ExactSum::kRecordSize;
  }
}

}  // namespace

double ChainedGroup::lr() const { return optimizer->param_groups().at(index).options().get_lr(); }

void ChainedGroup::set_lr(double lr) { optimizer->param_groups().at(index).options().set_lr(lr); }

double ChainedGroup::weight_decay() const { return optimizer->weight_decay(index); }

void ChainedGroup::set_weight_decay(double weight_decay) {
  optimizer->set_weight_decay(index, weight_decay);
}

ChainedOptimizer::ChainedOptimizer(Parts parts) : parts_(std::move(parts)) {
  if (!parts_.phases.empty()) return;
  parts_.phases.emplace_back();
  for (size_t i = 0; i < parts_.pieces.size(); ++i) parts_.phases[0].push_back(i);
}

ManagedOptimizer* ChainedOptimizer::child(const std::string& name) const {
  for (const auto& child : parts_.children)
    if (child.name == name) return child.optimizer.get();
  return nullptr;
}

ManagedOptimizer& ChainedOptimizer::owner(size_t param) const {
  return *child(parts_.routes[param].optimizer);
}

bool ChainedOptimizer::has_gradient(const OwnedPiece& piece) const {
  if (parts_.exchange) return parts_.exchange->has_gradient(piece.param);
  return parts_.params[piece.param].tensor.grad().defined();
}

// What children did in the phases of one step, by name; statistics have the same order on all
// ranks.
struct ChainedOptimizer::Totals {
  std::array<std::string, 2> names{"muon", "adam"};  // Muon and the scalar optimizer
  std::array<GroupStats, 2> stats{};

  void add(const ChainedChild& child) {
    GroupStats& total = stats[child.name == names[0] ? 0 : 1];
    for (const auto& group : child.optimizer->last_stats()) {
      total.matrices += group.matrices;
      total.elements += group.elements;
      total.update_square_sum += group.update_square_sum;
      total.factor_sum += group.factor_sum;
    }
  }
};

StepResult ChainedOptimizer::step() {
  at::NoGradGuard no_grad;
  if (parts_.exchange) parts_.exchange->finish_grad_sync();
  std::vector<bool> stepped;
  for (const auto& piece : parts_.pieces) stepped.push_back(has_gradient(piece));
  const ExactSum squares = sum_of_squares(stepped);
  StepResult result;
  result.grad_norm = squares.root();
  if (!squares.finite()) {
    result.skipped = true;
    result.clip_coefficient = 0.0;
    return result;
  }
  result.clip_coefficient = clip_coefficient(result.grad_norm, parts_.clip_grad);
  const std::optional<SquareSum> observed = observe(stepped, result.clip_coefficient);
  Totals totals;
  totals.names[1] = parts_.scalar_optimizer;
  for (size_t phase = 0; phase < parts_.phases.size(); ++phase) {
    run_phase(parts_.phases[phase], stepped, result.clip_coefficient, observed, totals);
    if (parts_.exchange) parts_.exchange->start_param_gather(phase);
  }
  if (parts_.exchange) parts_.exchange->finish_step();
  report(stepped, totals, result);
  return result;
}

ExactSum ChainedOptimizer::sum_of_squares(const std::vector<bool>& stepped) const {
  ExactSum squares;
  for (size_t i = 0; i < stepped.size(); ++i) {
    const OwnedPiece& piece = parts_.pieces[i];
    if (!stepped[i] || !piece.counted) continue;
    add_squares(squares,
                piece.grad.defined() ? piece.grad : parts_.params[piece.param].tensor.grad());
  }
  if (!parts_.exchange) return squares;
  std::vector<int64_t> record = squares.record();
  parts_.exchange->sum(record);
  return ExactSum::from_record(record);
}

// What the children take in of all gradients before the first update, over all ranks. Those of a
// run are the same on every rank, so that all exchange or none does.
std::optional<SquareSum> ChainedOptimizer::observe(const std::vector<bool>& stepped, double scale) {
  std::optional<SquareSum> total;
  for (auto& child : parts_.children) {
    if (!child.optimizer->observes()) continue;
    auto own = [&](size_t i) {
      return stepped[i] && &owner(parts_.pieces[i].param) == child.optimizer.get();
    };
    for (size_t i = 0; i < stepped.size(); ++i)
      if (own(i)) lend_gradient(parts_.pieces[i]);
    total = child.optimizer->observe({.grad_scale = scale});
    for (size_t i = 0; i < stepped.size(); ++i)
      if (own(i)) take_gradient_back(parts_.pieces[i]);
  }
  if (total && parts_.exchange) add_over_ranks(*parts_.exchange, {&total->count}, {&total->sum});
  return total;
}

void ChainedOptimizer::run_phase(const std::vector<size_t>& phase, const std::vector<bool>& stepped,
                                 double scale, const std::optional<SquareSum>& observed,
                                 Totals& totals) {
  for (size_t i : phase)
    if (stepped[i]) lend_gradient(parts_.pieces[i]);
  for (auto& child : parts_.children) {
    const bool any = std::any_of(phase.begin(), phase.end(), [&](size_t i) {
      return stepped[i] && &owner(parts_.pieces[i].param) == child.optimizer.get();
    });
    if (!any) continue;
    child.optimizer->step_with({.grad_scale = scale, .observed = observed});
    totals.add(child);
  }
  for (size_t i : phase)
    if (stepped[i]) write_back(parts_.pieces[i]);
}

// Masters see gradients as they are, without a copy.
void ChainedOptimizer::lend_gradient(const OwnedPiece& piece) {
  const at::Tensor& param = parts_.params[piece.param].tensor;
  if (piece.master.is_same(param)) return;
  piece.master.mutable_grad() = piece.grad.defined() ? piece.grad : param.grad();
}

void ChainedOptimizer::take_gradient_back(const OwnedPiece& piece) {
  if (!piece.master.is_same(parts_.params[piece.param].tensor)) piece.master.mutable_grad().reset();
}

void ChainedOptimizer::write_back(const OwnedPiece& piece) {
  if (piece.master.is_same(parts_.params[piece.param].tensor)) return;
  take_gradient_back(piece);
  if (piece.target.defined()) piece.target.copy_(piece.master);
}

// Checks this rank's part, then adds up all ranks'. A matrix that several ranks orthogonalize
// counts once.
void ChainedOptimizer::report(const std::vector<bool>& stepped, Totals& totals,
                              StepResult& result) const {
  int64_t due = 0;
  for (size_t i = 0; i < stepped.size(); ++i) {
    if (!stepped[i]) continue;
    due += parts_.pieces[i].matrices;
    result.ns_calls += parts_.pieces[i].counts_matrices ? parts_.pieces[i].matrices : 0;
  }
  check(totals.stats[0].matrices == due,
        "this step orthogonalized {} matrices where {} logical matrices of Muon have a gradient: "
        "the weights are not to be trusted",
        totals.stats[0].matrices, due);
  GroupStats &muon = totals.stats[0], &scalar = totals.stats[1];
  if (parts_.exchange)
    add_over_ranks(*parts_.exchange, {&result.ns_calls, &muon.elements, &scalar.elements},
                   {&muon.update_square_sum, &scalar.update_square_sum, &muon.factor_sum});
  if (muon.elements > 0)
    result.extra_scale_factor = muon.factor_sum / static_cast<double>(muon.elements);
  if (!parts_.measure_update_rms) return;
  for (size_t k = 0; k < totals.names.size(); ++k)
    if (child(totals.names[k]) != nullptr || totals.stats[k].elements > 0)
      result.update_rms[totals.names[k]] = totals.stats[k].update_rms();
}

void ChainedOptimizer::zero_grad() {
  if (parts_.exchange) return parts_.exchange->zero_grad();
  for (auto& param : parts_.params) param.tensor.mutable_grad().reset();
}

void ChainedOptimizer::scale_rows(const std::string& name, const at::Tensor& factors) {
  at::NoGradGuard no_grad;
  const auto found = std::find_if(parts_.params.begin(), parts_.params.end(),
                                  [&](const NamedParam& param) { return param.spec.name == name; });
  check(found != parts_.params.end(), "scale_rows: '{}' is no parameter of this optimizer", name);
  const at::Tensor& whole = found->tensor;
  const size_t param = static_cast<size_t>(found - parts_.params.begin());
  check(factors.dim() == 1 && factors.size(0) == whole.size(0),
        "scale_rows: {} factors for the {} rows of '{}'", factors.numel(), whole.size(0), name);
  if (parts_.exchange) parts_.exchange->wait_params();
  std::vector<int64_t> column(whole.dim(), 1);
  column[0] = factors.size(0);
  for (const OwnedPiece& piece : parts_.pieces) {
    if (piece.param != param) continue;
    const at::Tensor spread =
        factors.to(piece.master.options().requires_grad(false)).view(column).expand(whole.sizes());
    piece.master.mul_(
        spread.reshape(-1).slice(0, piece.begin, piece.end).view(piece.master.sizes()));
    if (piece.target.defined()) piece.target.copy_(piece.master);
  }
  if (parts_.exchange) parts_.exchange->gather_param(param);
}

bool ChainedOptimizer::has_master(size_t param) const {
  const bool wanted = parts_.muon_masters || parts_.routes[param].optimizer != "muon";
  return wanted && parts_.params[param].tensor.scalar_type() == at::kBFloat16;
}

int64_t ChainedOptimizer::planned_state_bytes(size_t param, int64_t elements) const {
  const NamedParam& named = parts_.params.at(param);
  const std::string& optimizer = parts_.routes.at(param).optimizer;
  if (elements == 0) return 0;
  if (optimizer == "muon")
    return muoncore::optim::planned_state_bytes(
        static_cast<const MuonOptions&>(child("muon")->defaults()), named.spec);
  const int64_t moments = optimizer == "lion" ? 1 : 2;
  return moments * elements * std::max<int64_t>(4, named.tensor.element_size());
}

int64_t ChainedOptimizer::planned_master_bytes(size_t param, int64_t elements) const {
  const bool narrow = parts_.params.at(param).tensor.scalar_type() == at::kBFloat16;
  return narrow && has_master(param) ? 4 * elements : 0;
}

int64_t ChainedOptimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& child : parts_.children) bytes += child.optimizer->state_bytes();
  return bytes;
}

std::map<std::string, int64_t> ChainedOptimizer::state_bytes_by_optimizer() const {
  std::map<std::string, int64_t> bytes;
  for (const auto& child : parts_.children) bytes[child.name] = child.optimizer->state_bytes();
  return bytes;
}

int64_t ChainedOptimizer::master_bytes() const {
  int64_t bytes = 0;
  for (const OwnedPiece& piece : parts_.pieces)
    if (piece.target.defined()) bytes += static_cast<int64_t>(piece.master.nbytes());
  return bytes;
}

std::map<std::string, int64_t> ChainedOptimizer::elements_by_optimizer() const {
  std::map<std::string, int64_t> elements;
  for (size_t i = 0; i < parts_.params.size(); ++i)
    elements[parts_.routes[i].optimizer] += parts_.params[i].tensor.numel();
  return elements;
}

}  // namespace muoncore::optim
