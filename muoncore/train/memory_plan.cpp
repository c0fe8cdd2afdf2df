#include "muoncore/train/memory_plan.h"

#include <algorithm>

namespace muoncore::train {
namespace {

int64_t element_bytes(const models::CausalLM& model) {
  return static_cast<int64_t>(c10::elementSize(model.dtype()));
}

// Of a parameter's place in a buffer, the elements in the shard of `rank`.
int64_t owned(const parallel::BufferPlan& buffer, const parallel::Placement& place, int64_t rank) {
  if (!buffer.sharded) return place.end - place.start;
  const auto& shards = buffer.layout.buckets.at(place.bucket).shards;
  return std::max<int64_t>(
      0, std::min(place.end, shards.at(rank + 1)) - std::max(place.start, shards.at(rank)));
}

void plan_buffers(const parallel::BufferPlan& buffer, int64_t param_bytes, MemoryPlan& plan) {
  plan.weights +=
      param_bytes * (buffer.sharded ? buffer.layout.numel() : buffer.layout.numel_unpadded());
  plan.gradients +=
      static_cast<int64_t>(c10::elementSize(buffer.grad_dtype)) * buffer.layout.numel();
}

}  // namespace

int64_t MemoryPlan::total() const {
  return weights + gradients + masters + optimizer_state + reference;
}

std::map<size_t, int64_t> owned_elements(const parallel::WrappedModel& wrapped, int64_t rank) {
  std::map<size_t, int64_t> elements;
  const optim::ChainedOptimizer& optimizer = *wrapped.optimizer;
  if (wrapped.plans.empty()) {
    for (size_t i = 0; i < optimizer.routing().size(); ++i) elements[i] = optimizer.elements(i);
    return elements;
  }
  for (const auto& buffer : wrapped.plans.front())
    for (const auto& place : buffer.layout.placements)
      elements[buffer.params.at(place.param)] += owned(buffer, place, rank);
  return elements;
}

MemoryPlan plan_memory(const models::CausalLM& model, const parallel::WrappedModel& wrapped,
                       int64_t rank, bool with_reference) {
  const int64_t param_bytes = element_bytes(model);
  const int64_t model_bytes = param_bytes * model.config().parameter_count();
  MemoryPlan plan;
  if (wrapped.plans.empty()) {
    plan.weights = plan.gradients = model_bytes;
  } else {
    for (const auto& buffer : wrapped.plans.front()) plan_buffers(buffer, param_bytes, plan);
  }
  for (const auto& [param, elements] : owned_elements(wrapped, rank)) {
    plan.optimizer_state += wrapped.optimizer->planned_state_bytes(param, elements);
    plan.masters += wrapped.optimizer->planned_master_bytes(param, elements);
  }
  plan.reference = with_reference ? model_bytes : 0;
  return plan;
}

}  // namespace muoncore::train
