#include "muoncore/optim/chained.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "muoncore/core/check.h"
#include "muoncore/optim/grad_norm.h"

namespace muoncore::optim {

double ChainedGroup::lr() const { return optimizer->param_groups().at(index).options().get_lr(); }

void ChainedGroup::set_lr(double lr) { optimizer->param_groups().at(index).options().set_lr(lr); }

double ChainedGroup::weight_decay() const { return optimizer->weight_decay(index); }

void ChainedGroup::set_weight_decay(double weight_decay) {
  optimizer->set_weight_decay(index, weight_decay);
}

ChainedOptimizer::ChainedOptimizer(Parts parts) : parts_(std::move(parts)) {}

ManagedOptimizer* ChainedOptimizer::child(const std::string& name) const {
  for (const auto& child : parts_.children)
    if (child.name == name) return child.optimizer.get();
  return nullptr;
}

ManagedOptimizer& ChainedOptimizer::owner(size_t i) const {
  return *child(parts_.routes[i].optimizer);
}

std::vector<size_t> ChainedOptimizer::params_with_gradients() const {
  std::vector<size_t> found;
  for (size_t i = 0; i < parts_.params.size(); ++i)
    if (parts_.params[i].tensor.grad().defined()) found.push_back(i);
  return found;
}

StepResult ChainedOptimizer::step() {
  at::NoGradGuard no_grad;
  const std::vector<size_t> stepped = params_with_gradients();
  std::vector<at::Tensor> grads;
  for (size_t i : stepped) grads.push_back(parts_.params[i].tensor.grad());
  const GradNorm norm = grad_norm(grads);
  if (!norm.finite)
    return {.skipped = true, .grad_norm = norm.norm, .clip_coefficient = 0.0, .update_rms = {}};

  StepResult result{.grad_norm = norm.norm,
                    .clip_coefficient = clip_coefficient(norm.norm, parts_.clip_grad),
                    .update_rms = {}};
  lend_gradients(stepped);
  for (auto& child : parts_.children) {
    child.optimizer->step_with({.grad_scale = result.clip_coefficient});
    add_stats(child, result);
  }
  write_back(stepped);
  check_orthogonalized(stepped, result.ns_calls);
  return result;
}

// Masters see the gradients of their bf16 parameters as they are, without a copy.
void ChainedOptimizer::lend_gradients(const std::vector<size_t>& stepped) {
  for (size_t i : stepped)
    if (has_master(i)) parts_.masters[i].mutable_grad() = parts_.params[i].tensor.grad();
}

void ChainedOptimizer::write_back(const std::vector<size_t>& stepped) {
  for (size_t i : stepped) {
    if (!has_master(i)) continue;
    parts_.masters[i].mutable_grad().reset();
    parts_.params[i].tensor.copy_(parts_.masters[i]);
  }
}

void ChainedOptimizer::add_stats(const ChainedChild& child, StepResult& result) const {
  GroupStats sum;
  for (const auto& group : child.optimizer->last_stats()) {
    sum.matrices += group.matrices;
    sum.elements += group.elements;
    sum.update_square_sum += group.update_square_sum;
  }
  result.ns_calls += sum.matrices;
  if (parts_.measure_update_rms) result.update_rms[child.name] = sum.update_rms();
}

void ChainedOptimizer::check_orthogonalized(const std::vector<size_t>& stepped,
                                            int64_t calls) const {
  int64_t due = 0;
  for (size_t i : stepped) due += parts_.matrices[i];
  check(
      calls == due,
      "this step orthogonalized {} matrices where {} logical matrices of Muon have a gradient: the "
      "weights are not to be trusted",
      calls, due);
}

void ChainedOptimizer::zero_grad() {
  for (auto& param : parts_.params) param.tensor.mutable_grad().reset();
}

void ChainedOptimizer::scale_rows(const std::string& name, const at::Tensor& factors) {
  at::NoGradGuard no_grad;
  const auto found = std::find_if(parts_.params.begin(), parts_.params.end(),
                                  [&](const NamedParam& param) { return param.spec.name == name; });
  check(found != parts_.params.end(), "scale_rows: '{}' is no parameter of this optimizer", name);
  const at::Tensor& master = parts_.masters[found - parts_.params.begin()];
  check(factors.dim() == 1 && factors.size(0) == master.size(0),
        "scale_rows: {} factors for the {} rows of '{}'", factors.numel(), master.size(0), name);
  std::vector<int64_t> column(master.dim(), 1);
  column[0] = factors.size(0);
  master.mul_(factors.to(master.options().requires_grad(false)).view(column));
  if (!master.is_same(found->tensor)) found->tensor.copy_(master);
}

bool ChainedOptimizer::has_master(size_t i) const {
  return !parts_.masters[i].is_same(parts_.params[i].tensor);
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
  for (size_t i = 0; i < parts_.masters.size(); ++i)
    if (has_master(i)) bytes += static_cast<int64_t>(parts_.masters[i].nbytes());
  return bytes;
}

std::map<std::string, int64_t> ChainedOptimizer::elements_by_optimizer() const {
  std::map<std::string, int64_t> elements;
  for (size_t i = 0; i < parts_.params.size(); ++i)
    elements[parts_.routes[i].optimizer] += parts_.params[i].tensor.numel();
  return elements;
}

}  // namespace muoncore::optim
