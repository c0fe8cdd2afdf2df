// What the ranks of a training do together in an optimizer step: the schedule's buckets, and small
// all-reduces of integers.
#pragma once

#include <cstdint>
#include <vector>

#include "muoncore/optim/owned_piece.h"
#include "muoncore/parallel/bucket_schedule.h"
#include "muoncore/parallel/model_chunk.h"

namespace muoncore::parallel {

class ModelExchange : public optim::StepExchange {
 public:
  // expert: one per parameter of all chunks. The schedule and the groups must outlive this.
  ModelExchange(BucketSchedule& schedule, const ParallelGroups& groups, std::vector<bool> expert,
                bool overlap_param_gather);

  void finish_grad_sync() override { schedule_.finish_grad_sync(); }
  bool has_gradient(size_t param) const override { return schedule_.has_gradient(param); }
  void sum(std::vector<int64_t>& record) override;
  void start_param_gather(size_t phase) override { schedule_.start_param_gather(phase); }
  void finish_step() override;
  void wait_params() override { schedule_.wait_params(); }
  void gather_param(size_t param) override { schedule_.gather_param(param); }
  void zero_grad() override { schedule_.zero_grads(); }
  size_t replica_sets() const override { return 2; }  // dense, expert
  size_t replica_set(size_t param) const override { return expert_.at(param) ? 1 : 0; }
  std::vector<std::vector<char>> all_gather_bytes(size_t set,
                                                  const std::vector<char>& own) override;

 private:
  BucketSchedule& schedule_;
  ParallelGroups groups_;
  std::vector<bool> expert_;
  bool overlap_param_gather_;
};

// The bytes of every rank of a group (null: of one rank), in rank order. Collective.
std::vector<std::vector<char>> all_gather_bytes(comm::Group* group, const std::vector<char>& own);

}  // namespace muoncore::parallel
