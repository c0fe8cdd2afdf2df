// The ranks of one run, and what they tell each other beside gradients: sums, and rows that each
// made a share of. Every rank calls the same functions in the same order; all get the same result,
// bit for bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "muoncore/comm/factory.h"
#include "muoncore/comm/group.h"

namespace muoncore::train {

// Items [begin, end) of a batch.
struct Share {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Rank `rank`'s share of `count` items among `ranks`: contiguous, in rank order, sizes that differ
// by at most one (empty where there are more ranks than items).
Share share_of(int64_t count, int64_t rank, int64_t ranks);

class Ranks {
 public:
  Ranks();  // one rank
  // world: all ranks of the run; factory: makes further groups of them; both must outlive this.
  // local_size: how many of them are on this machine. Collective.
  Ranks(comm::Group& world, comm::GroupFactory& factory, int64_t local_size = 1);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int64_t rank() const { return group_->rank(); }
  int64_t size() const { return group_->size(); }
  int64_t local_size() const { return local_size_; }
  // Gradients and parameters travel in a group of their own: buckets leave while a backward pass
  // runs, in another order than the calls below. Null: one rank.
  comm::Group* gradients() const { return gradients_.get(); }

  Share share(int64_t count) const { return share_of(count, rank(), size()); }

  // Element by element over all ranks, in fp64, summed from rank 0 upwards.
  std::vector<double> sum(const std::vector<double>& values, std::string_view what) const;
  std::vector<double> max(const std::vector<double>& values, std::string_view what) const;

  at::Tensor max(const at::Tensor& values, std::string_view what) const;  // a new tensor

  // `count` items, each of `rows` rows, of which every rank has those of its share: own
  // [share(count).size() * rows, ...] -> [count * rows, ...], in order, on own's device. The
  // dimensions after the first are the same on all ranks.
  at::Tensor gather(const at::Tensor& own, int64_t count, std::string_view what,
                    int64_t rows = 1) const;
  std::vector<double> gather(const std::vector<double>& own, int64_t count, std::string_view what,
                             int64_t rows = 1) const;
  std::vector<int64_t> gather(const std::vector<int64_t>& own, int64_t count, std::string_view what,
                              int64_t rows = 1) const;

  // Rank 0 runs `work` (on another thread, where there are several ranks), the others wait for it,
  // however long it takes. What it throws is thrown on rank 0.
  void on_rank_0(const std::function<void()>& work, std::string_view what) const;

 private:
  std::vector<double> reduced(const std::vector<double>& values, comm::ReduceOp op,
                              std::string_view what) const;

  std::unique_ptr<comm::Group> alone_;
  comm::Group* group_;
  std::unique_ptr<comm::Group> gradients_;
  int64_t local_size_ = 1;
};

}  // namespace muoncore::train
