#include "muoncore/parallel/bucket_schedule.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::parallel {

BucketSchedule::BucketSchedule(Options options)
    : options_(options),
      entry_of_(options.params),
      arrived_(options.params, false),
      ready_(options.params, false),
      arrived_anywhere_(options.params, false) {}

void BucketSchedule::add(ParamAndGradBuffer& buffer, size_t bucket, bool tied) {
  Entry entry{.buffer = &buffer, .bucket = bucket, .tied = tied, .params = {}};
  for (const auto& place : buffer.layout().placements) {
    if (static_cast<size_t>(place.bucket) != bucket) continue;
    entry.params.push_back(buffer.params()[place.param].index);
    entry_of_.at(entry.params.back()) = entries_.size();
  }
  entries_.push_back(std::move(entry));
}

void BucketSchedule::gradient_arrived(size_t param) {
  Entry& entry = entries_[entry_of_.at(param)];
  if (entry.started || synced_) {
    const auto& params = entry.buffer->params();
    const auto found = std::find_if(params.begin(), params.end(),
                                    [&](const BufferParam& p) { return p.index == param; });
    fail(
        "a gradient of '{}' arrived after the reduction of its bucket began: call zero_grad "
        "between steps, and run every backward pass of a step but the last under no_sync",
        found->name);
  }
  arrived_[param] = true;
  if (!sync_ || ready_[param]) return;
  ready_[param] = true;
  ++entry.ready;
  if (options_.overlap_grad_reduce) start_ready(false);
}

void BucketSchedule::start_ready(bool all) {
  for (; next_ < entries_.size(); ++next_) {
    Entry& entry = entries_[next_];
    if (!all && entry.ready < entry.params.size()) return;
    entry.reduction = entry.buffer->start_grad_reduce(entry.bucket);
    entry.started = true;
  }
}

void BucketSchedule::start_grad_sync() {
  if (!synced_) start_ready(true);
}

void BucketSchedule::finish_grad_sync() {
  if (synced_) return;
  at::NoGradGuard no_grad;
  for (const Entry& entry : entries_)
    if (entry.bucket == 0) entry.buffer->check_views();
  start_ready(true);
  std::vector<Arrivals> arrivals = start_arrivals();
  for (Entry& entry : entries_) wait_for(entry);
  finish_arrivals(arrivals);
  synced_ = true;
}

void BucketSchedule::wait_for(Entry& entry) {
  if (entry.reduction) entry.reduction->wait();
  entry.reduction = nullptr;
  const at::Tensor grads = entry.buffer->reduced_grads(entry.bucket);
  if (options_.grad_factor != 1.0) grads.mul_(options_.grad_factor);
  // Both stages cut the bucket alike: it holds nothing else.
  if (entry.tied && options_.embedding != nullptr)
    options_.embedding->all_reduce(grads, comm::ReduceOp::kSum, "gradients of tied embeddings")
        ->wait();
}

// A parameter counts as having a gradient if one came on any rank that holds it: the sum is then
// its gradient everywhere. One that nobody used is left alone, as on one rank.
struct BucketSchedule::Arrivals {
  comm::Group* group;
  std::vector<size_t> params;
  at::Tensor flags;
  comm::WorkPtr work;
};

std::vector<BucketSchedule::Arrivals> BucketSchedule::start_arrivals() {
  std::vector<Arrivals> all;
  for (const Entry& entry : entries_) {
    comm::Group* group = entry.buffer->group();
    auto found =
        std::find_if(all.begin(), all.end(), [&](const Arrivals& a) { return a.group == group; });
    if (found == all.end()) found = all.insert(all.end(), Arrivals{group, {}, {}, nullptr});
    found->params.insert(found->params.end(), entry.params.begin(), entry.params.end());
  }
  for (Arrivals& arrivals : all) {
    std::vector<int> flags;
    for (size_t param : arrivals.params) flags.push_back(arrived_[param] ? 1 : 0);
    arrivals.flags = at::tensor(flags, at::kInt).to(entries_[0].buffer->grad_data().device());
    if (arrivals.group != nullptr)
      arrivals.work = arrivals.group->all_reduce(arrivals.flags, comm::ReduceOp::kMax,
                                                 "which parameters have gradients");
  }
  return all;
}

void BucketSchedule::finish_arrivals(std::vector<Arrivals>& arrivals) {
  for (Arrivals& group : arrivals) {
    if (group.work) group.work->wait();
    const at::Tensor flags = group.flags.to(at::kCPU);
    for (size_t k = 0; k < group.params.size(); ++k)
      arrived_anywhere_[group.params[k]] = flags.const_data_ptr<int>()[k] != 0;
  }
}

void BucketSchedule::zero_grads() {
  at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    if (entry.reduction) entry.reduction->wait();
    entry.reduction = nullptr;
    entry.ready = 0;
    entry.started = false;
    if (entry.bucket == 0) entry.buffer->zero_grads();
  }
  for (auto* flags : {&arrived_, &ready_, &arrived_anywhere_}) flags->assign(flags->size(), false);
  next_ = 0;
  synced_ = false;
}

void BucketSchedule::start_param_gather(size_t k) {
  Entry& entry = entries_.at(entries_.size() - 1 - k);
  entry.gather = entry.buffer->start_param_gather(entry.bucket);
}

void BucketSchedule::wait_params() {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->gather) entry->gather->wait();
    entry->gather = nullptr;
  }
}

void BucketSchedule::wait_param(size_t param) {
  Entry& entry = entries_[entry_of_.at(param)];
  if (entry.gather) entry.gather->wait();
  entry.gather = nullptr;
}

void BucketSchedule::gather_param(size_t param) {
  start_param_gather(entries_.size() - 1 - entry_of_.at(param));
  wait_param(param);
}

size_t BucketSchedule::forward_index(const ParamAndGradBuffer& buffer, size_t bucket) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.buffer == &buffer && entry.bucket == bucket;
  });
  check(found != entries_.end(), "bucket {} of {} does not travel", bucket, buffer.name());
  return entries_.size() - 1 - static_cast<size_t>(found - entries_.begin());
}

}  // namespace muoncore::parallel
