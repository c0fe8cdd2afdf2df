#include "muoncore/parallel/model_exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <numeric>

namespace muoncore::parallel {

ModelExchange::ModelExchange(BucketSchedule& schedule, const ParallelGroups& groups,
                             std::vector<bool> expert, bool overlap_param_gather)
    : schedule_(schedule),
      groups_(groups),
      expert_(std::move(expert)),
      overlap_param_gather_(overlap_param_gather) {}

void ModelExchange::sum(std::vector<int64_t>& record) {
  if (groups_.world == nullptr) return;
  const at::Tensor numbers =
      at::from_blob(record.data(), {static_cast<int64_t>(record.size())}, at::kLong);
  groups_.world->all_reduce(numbers, comm::ReduceOp::kSum, "norm and numbers of a step")->wait();
}

void ModelExchange::finish_step() {
  if (!overlap_param_gather_) schedule_.wait_params();
}

std::vector<std::vector<char>> ModelExchange::all_gather_bytes(size_t set,
                                                               const std::vector<char>& own) {
  return parallel::all_gather_bytes(set == 0 ? groups_.dp : groups_.expert_dp, own);
}

std::vector<std::vector<char>> all_gather_bytes(comm::Group* group, const std::vector<char>& own) {
  if (group == nullptr) return {own};
  const int64_t ranks = group->size(), me = group->rank();
  at::Tensor lengths = at::zeros({ranks}, at::kLong);
  lengths[me] = static_cast<int64_t>(own.size());
  group->all_gather(lengths, std::vector<int64_t>(ranks, 1), "lengths of what ranks exchange")
      ->wait();
  const int64_t* length = lengths.const_data_ptr<int64_t>();
  const std::vector<int64_t> sizes(length, length + ranks);
  at::Tensor all = at::empty({std::reduce(sizes.begin(), sizes.end())}, at::kByte);
  char* bytes = static_cast<char*>(all.mutable_data_ptr());
  const int64_t before = std::reduce(sizes.begin(), sizes.begin() + me);
  if (!own.empty()) std::memcpy(bytes + before, own.data(), own.size());
  group->all_gather(all, sizes, "what ranks exchange")->wait();
  std::vector<std::vector<char>> out;
  for (int64_t size : sizes) {
    out.emplace_back(bytes, bytes + size);
    bytes += size;
  }
  return out;
}

}  // namespace muoncore::parallel
