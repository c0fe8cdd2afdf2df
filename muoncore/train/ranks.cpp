#include "muoncore/train/ranks.h"

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <future>

namespace muoncore::train {
namespace {

template <typename T>
std::vector<T> to_vector(const at::Tensor& tensor) {
  const at::Tensor cpu = tensor.cpu().contiguous();
  const T* begin = cpu.const_data_ptr<T>();
  return {begin, begin + cpu.numel()};
}

}  // namespace

Share share_of(int64_t count, int64_t rank, int64_t ranks) {
  return {count * rank / ranks, count * (rank + 1) / ranks};
}

Ranks::Ranks()
    : alone_(
          std::make_unique<comm::Group>("dp", 0, std::vector<int64_t>{0}, std::nullopt, nullptr)),
      group_(alone_.get()) {}

Ranks::Ranks(comm::Group& world, comm::GroupFactory& factory, int64_t local_size)
    : group_(&world), local_size_(local_size) {
  if (size() > 1) gradients_ = factory.make("dp", world.global_ranks());
}

std::vector<double> Ranks::reduced(const std::vector<double>& values, comm::ReduceOp op,
                                   std::string_view what) const {
  if (size() == 1) return values;
  const at::Tensor all = torch::tensor(values, torch::kDouble);
  group_->all_reduce(all, op, what)->wait();
  return to_vector<double>(all);
}

std::vector<double> Ranks::sum(const std::vector<double>& values, std::string_view what) const {
  return reduced(values, comm::ReduceOp::kSum, what);
}

std::vector<double> Ranks::max(const std::vector<double>& values, std::string_view what) const {
  return reduced(values, comm::ReduceOp::kMax, what);
}

at::Tensor Ranks::max(const at::Tensor& values, std::string_view what) const {
  if (size() == 1) return values;
  const at::Tensor all = values.cpu().contiguous().clone();
  group_->all_reduce(all, comm::ReduceOp::kMax, what)->wait();
  return all.to(values.device());
}

at::Tensor Ranks::gather(const at::Tensor& own, int64_t count, std::string_view what,
                         int64_t rows) const {
  if (size() == 1) return own;
  std::vector<int64_t> shape = own.sizes().vec();
  shape[0] = count * rows;
  const at::Tensor all = torch::empty(shape, own.options().device(torch::kCPU));
  const Share mine = share(count);
  all.slice(0, mine.begin * rows, mine.end * rows).copy_(own);
  int64_t each = rows;  // elements of an item
  for (size_t d = 1; d < shape.size(); ++d) each *= shape[d];
  std::vector<int64_t> sizes;
  for (int64_t r = 0; r < size(); ++r) sizes.push_back(share_of(count, r, size()).size() * each);
  group_->all_gather(all.flatten(), sizes, what)->wait();
  return all.to(own.device());
}

std::vector<double> Ranks::gather(const std::vector<double>& own, int64_t count,
                                  std::string_view what, int64_t rows) const {
  return to_vector<double>(gather(torch::tensor(own, torch::kDouble), count, what, rows));
}

std::vector<int64_t> Ranks::gather(const std::vector<int64_t>& own, int64_t count,
                                   std::string_view what, int64_t rows) const {
  return to_vector<int64_t>(gather(torch::tensor(own, torch::kInt64), count, what, rows));
}

void Ranks::on_rank_0(const std::function<void()>& work, std::string_view what) const {
  if (size() == 1) return work();
  std::future<void> done;
  if (rank() == 0) done = std::async(std::launch::async, work);
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    const bool ready = rank() == 0 && done.wait_for(pause) == std::future_status::ready;
    if (ready) done.get();
    if (sum({ready ? 1.0 : 0.0}, what)[0] > 0.0) return;
    pause = std::min(2 * pause, std::chrono::milliseconds(500));
  }
}

}  // namespace muoncore::train
