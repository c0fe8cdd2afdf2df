#include "muoncore/parallel/param_and_grad_buffer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::parallel {

ParamAndGradBuffer::ParamAndGradBuffer(std::vector<BufferParam> params, Options options)
    : params_(std::move(params)), options_(std::move(options)) {
  at::NoGradGuard no_grad;
  check(!params_.empty() && params_.size() == options_.layout.placements.size(),
        "buffer {}: {} parameters where its layout has {}", options_.name, params_.size(),
        options_.layout.placements.size());
  const auto dtype = params_[0].tensor.scalar_type();
  for (const auto& placement : options_.layout.placements) {
    const auto& [name, tensor, index] = params_.at(placement.param);
    check(tensor.is_leaf() && tensor.is_contiguous() && tensor.scalar_type() == dtype &&
              tensor.numel() == placement.end - placement.start,
          "buffer {}: parameter '{}' is {} [{}], which is no contiguous {} leaf of {} elements",
          options_.name, name, c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
          c10::toString(dtype), placement.end - placement.start);
  }
  const auto memory = params_[0].tensor.options().requires_grad(false);
  if (options_.sharded) param_data_ = at::zeros({options_.layout.numel()}, memory);
  grad_data_ = at::zeros({options_.layout.numel()}, memory.dtype(options_.grad_dtype));
  for (size_t i = 0; i < params_.size(); ++i) adopt(i);
}

ParamAndGradBuffer::~ParamAndGradBuffer() {
  for (auto& param : params_) param.tensor.mutable_grad().reset();
}

void ParamAndGradBuffer::adopt(size_t placement) {
  const auto& [param, start, end, bucket, owner] = options_.layout.placements[placement];
  at::Tensor& tensor = params_[param].tensor;
  if (options_.sharded) {
    const at::Tensor home = param_data_.slice(0, start, end).view(tensor.sizes());
    home.copy_(tensor);
    tensor.set_data(home);
  }
  tensor.mutable_grad() = grad_view(placement);
}

// variable_data: torch's zero_grad() throws on a view of the buffer.
at::Tensor ParamAndGradBuffer::grad_view(size_t placement) const {
  const auto& place = options_.layout.placements[placement];
  return at::Tensor(grad_data_.slice(0, place.start, place.end)
                        .view(params_[place.param].tensor.sizes())
                        .variable_data());
}

std::vector<int64_t> ParamAndGradBuffer::shard_sizes(size_t bucket) const {
  const auto& ends = options_.layout.buckets[bucket].shards;
  std::vector<int64_t> sizes;
  for (size_t r = 0; r + 1 < ends.size(); ++r) sizes.push_back(ends[r + 1] - ends[r]);
  return sizes;
}

namespace {

at::Tensor own_shard(const at::Tensor& data, const Bucket& bucket, comm::Group* group) {
  const size_t rank = group == nullptr ? 0 : static_cast<size_t>(group->rank());
  return data.slice(0, bucket.shards.at(rank), bucket.shards.at(rank + 1));
}

at::Tensor whole_bucket(const at::Tensor& data, const Bucket& bucket) {
  return data.slice(0, bucket.start, bucket.end);
}

}  // namespace

comm::WorkPtr ParamAndGradBuffer::start_grad_reduce(size_t bucket) {
  if (options_.group == nullptr) return nullptr;
  const Bucket& place = options_.layout.buckets[bucket];
  const std::string what = fmt::format("gradients of bucket {} of {}", bucket, options_.name);
  const at::Tensor grads = whole_bucket(grad_data_, place);
  if (!options_.sharded) return options_.group->all_reduce(grads, comm::ReduceOp::kSum, what);
  return options_.group->reduce_scatter(own_shard(grad_data_, place, options_.group), grads,
                                        shard_sizes(bucket), what);
}

at::Tensor ParamAndGradBuffer::reduced_grads(size_t bucket) const {
  const Bucket& place = options_.layout.buckets[bucket];
  return options_.sharded ? own_shard(grad_data_, place, options_.group)
                          : whole_bucket(grad_data_, place);
}

comm::WorkPtr ParamAndGradBuffer::start_param_gather(size_t bucket) {
  if (options_.group == nullptr || !options_.sharded) return nullptr;
  return options_.group->all_gather(
      whole_bucket(param_data_, options_.layout.buckets[bucket]), shard_sizes(bucket),
      fmt::format("parameters of bucket {} of {}", bucket, options_.name));
}

void ParamAndGradBuffer::broadcast_params() {
  at::NoGradGuard no_grad;
  if (options_.group == nullptr) return;
  const std::string what = fmt::format("parameters of {}", options_.name);
  if (options_.sharded) return options_.group->broadcast(param_data_, 0, what)->wait();
  for (const auto& param : params_)
    options_.group->broadcast(param.tensor.detach(), 0, what)->wait();
}

void ParamAndGradBuffer::zero_grads() { grad_data_.zero_(); }

void ParamAndGradBuffer::check_views() const {
  for (const auto& place : options_.layout.placements) {
    const auto& [name, tensor, index] = params_[place.param];
    const auto at = [&](const at::Tensor& data) {
      return static_cast<const char*>(data.const_data_ptr()) + place.start * data.element_size();
    };
    check(!options_.sharded || tensor.const_data_ptr() == at(param_data_),
          "the data of '{}' was replaced: it must stay in the flat buffer (write into the "
          "parameter, and cast a model before its optimizer is made)",
          name);
    check(tensor.grad().defined() && tensor.grad().const_data_ptr() == at(grad_data_),
          "the gradient of '{}' was replaced: it must stay in the flat buffer (clear gradients by "
          "the optimizer's zero_grad, not by torch's)",
          name);
  }
}

optim::OwnedPiece ParamAndGradBuffer::make_piece(const Placement& placement, int64_t begin,
                                                 int64_t end) const {
  const auto& [name, tensor, index] = params_[placement.param];
  std::vector<int64_t> shape{end - begin};
  if (end - begin == tensor.numel()) shape = tensor.sizes().vec();
  const at::Tensor values = tensor.detach().view(-1).slice(0, begin, end).view(shape);
  optim::OwnedPiece piece{.param = index, .begin = begin, .end = end};
  if (tensor.scalar_type() == at::kBFloat16) {
    piece.master = values.to(at::kFloat);
    piece.target = values;
  } else {
    piece.master = at::Tensor(values.variable_data());
  }
  piece.master.set_requires_grad(true);
  piece.grad = grad_data_.slice(0, placement.start + begin, placement.start + end).view(shape);
  return piece;
}

std::vector<ParamAndGradBuffer::Piece> ParamAndGradBuffer::owned_pieces() const {
  at::NoGradGuard no_grad;
  std::vector<Piece> pieces;
  const size_t rank = options_.group == nullptr ? 0 : static_cast<size_t>(options_.group->rank());
  for (const auto& place : options_.layout.placements) {
    const Bucket& bucket = options_.layout.buckets[place.bucket];
    const int64_t first = options_.sharded ? bucket.shards[rank] : bucket.start,
                  last = options_.sharded ? bucket.shards[rank + 1] : bucket.end;
    const int64_t begin = std::max(place.start, first), end = std::min(place.end, last);
    if (begin >= end) continue;
    pieces.push_back({make_piece(place, begin - place.start, end - place.start),
                      static_cast<size_t>(place.bucket)});
  }
  return pieces;
}

}  // namespace muoncore::parallel
