// In which order the buckets of a whole model travel, and how far each has come.
//
// Gradients go in backward order: chunks from the last to the first, inside a chunk the bucket that
// is complete first, first. The order is fixed: a bucket starts when its last gradient is there and
// every bucket before it has started, so that all ranks make the same calls in the same order, also
// where their gradients become ready in different orders or a rank has no gradient of a parameter.
// Parameters go back in the reverse, the order in which the next forward pass needs them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "muoncore/parallel/param_and_grad_buffer.h"

namespace muoncore::parallel {

class BucketSchedule {
 public:
  struct Options {
    bool overlap_grad_reduce = false;
    double grad_factor = 1.0;          // sums are multiplied with it
    comm::Group* embedding = nullptr;  // see ParallelGroups
    size_t params = 0;                 // of the whole optimizer
  };
  explicit BucketSchedule(Options options);

  // Once each, in the order in which buckets travel. `tied`: it holds a shared embedding.
  void add(ParamAndGradBuffer& buffer, size_t bucket, bool tied);
  size_t buckets() const { return entries_.size(); }

  // A parameter's gradient is there (from autograd, or written by hand). Throws Error when its
  // bucket is on its way already: all backward passes but the last belong under no_sync.
  void gradient_arrived(size_t param);
  void set_sync(bool on) { sync_ = on; }  // off: gradients only accumulate

  // Starts the reduction of everything that has not started; finish waits for it, scales, and adds
  // up tied embeddings. The second call without new gradients does nothing. Collective.
  void start_grad_sync();
  void finish_grad_sync();
  bool has_gradient(size_t param) const { return arrived_anywhere_.at(param); }
  void zero_grads();

  // Bucket `k` in the order of the next forward pass: k = 0 holds what it reads first.
  void start_param_gather(size_t k);
  void wait_params();               // for all that are under way
  void wait_param(size_t param);    // for those that hold one parameter
  void gather_param(size_t param);  // starts and waits

  // Where a piece of this bucket belongs in that order.
  size_t forward_index(const ParamAndGradBuffer& buffer, size_t bucket) const;

 private:
  struct Entry {
    ParamAndGradBuffer* buffer;
    size_t bucket;
    bool tied;
    std::vector<size_t> params;
    size_t ready = 0;
    bool started = false;
    comm::WorkPtr reduction = nullptr, gather = nullptr;
  };
  struct Arrivals;

  void start_ready(bool all);
  void wait_for(Entry& entry);
  std::vector<Arrivals> start_arrivals();
  void finish_arrivals(std::vector<Arrivals>& arrivals);

  Options options_;
  std::vector<Entry> entries_;
  std::vector<size_t> entry_of_;  // by parameter
  // By parameter: a gradient came; under sync; on any rank.
  std::vector<bool> arrived_, ready_, arrived_anywhere_;
  size_t next_ = 0;  // entry that starts next
  bool sync_ = true;
  bool synced_ = false;
};

}  // namespace muoncore::parallel
