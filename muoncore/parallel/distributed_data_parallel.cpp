#include "muoncore/parallel/distributed_data_parallel.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::parallel {
namespace {

// Kept by the parameter; runs once per backward pass, in the thread that accumulated.
class ArrivalHook : public torch::autograd::PostAccumulateGradHook {
 public:
  ArrivalHook(BucketSchedule& schedule, size_t param) : schedule_(schedule), param_(param) {}
  void operator()(const at::Tensor&) override { schedule_.gradient_arrived(param_); }

 private:
  BucketSchedule& schedule_;
  size_t param_;
};

}  // namespace

DistributedDataParallel::DistributedDataParallel(const ModelChunk& chunk,
                                                 const std::vector<BufferPlan>& plans,
                                                 const ParallelGroups& groups,
                                                 BucketSchedule& schedule, size_t first_param)
    : params_(chunk.params), schedule_(schedule), first_param_(first_param) {
  for (const BufferPlan& plan : plans) {
    std::vector<BufferParam> members;
    for (size_t i : plan.params)
      members.push_back({params_.at(i).spec.name, params_[i].tensor, first_param_ + i});
    ParamAndGradBuffer::Options options{.name = plan.name,
                                        .layout = plan.layout,
                                        .sharded = plan.sharded,
                                        .grad_dtype = plan.grad_dtype,
                                        .group = plan.expert ? groups.expert_dp : groups.dp};
    buffers_.push_back(
        std::make_unique<ParamAndGradBuffer>(std::move(members), std::move(options)));
  }
  for (size_t i = 0; i < params_.size(); ++i) {
    check(params_[i].tensor.requires_grad(),
          "parameter '{}' requires no gradient: leave frozen parameters out", params_[i].spec.name);
    torch::autograd::impl::set_post_acc_grad_hooks(
        params_[i].tensor, std::make_unique<ArrivalHook>(schedule_, first_param_ + i));
  }
}

DistributedDataParallel::~DistributedDataParallel() {
  for (auto& param : params_) torch::autograd::impl::set_post_acc_grad_hooks(param.tensor, nullptr);
}

// A bucket is complete in a backward pass when the parameter is that the forward pass reads first.
void DistributedDataParallel::add_to_schedule() {
  struct Travel {
    ParamAndGradBuffer* buffer;
    size_t bucket;
    size_t first;  // parameter
    bool tied;
  };
  std::vector<Travel> travels;
  for (const auto& buffer : buffers_) {
    const size_t begin = travels.size();
    for (size_t b = 0; b < buffer->layout().buckets.size(); ++b)
      travels.push_back({buffer.get(), b, SIZE_MAX, false});
    for (const auto& place : buffer->layout().placements) {
      Travel& travel = travels[begin + static_cast<size_t>(place.bucket)];
      const size_t index = buffer->params()[place.param].index;
      travel.first = std::min(travel.first, index);
      travel.tied = travel.tied || params_[index - first_param_].shared_embedding;
    }
  }
  std::stable_sort(travels.begin(), travels.end(),
                   [](const Travel& a, const Travel& b) { return a.first > b.first; });
  for (const Travel& travel : travels) schedule_.add(*travel.buffer, travel.bucket, travel.tied);
}

void DistributedDataParallel::add_gradient(size_t i, const at::Tensor& gradient) {
  at::NoGradGuard no_grad;
  at::Tensor& grad = params_.at(i).tensor.mutable_grad();
  check(grad.defined() && gradient.sizes() == grad.sizes(),
        "a gradient given to '{}' is not of its shape", params_[i].spec.name);
  grad.add_(gradient);
  schedule_.gradient_arrived(first_param_ + i);
}

void DistributedDataParallel::broadcast_params() {
  for (const auto& buffer : buffers_) buffer->broadcast_params();
}

}  // namespace muoncore::parallel
