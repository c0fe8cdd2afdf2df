// Data parallelism of one model chunk: its parameters and gradients lie in flat buffers, and
// hooks behind autograd's accumulation tell the schedule which gradients are there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muoncore/parallel/bucket_schedule.h"
#include "muoncore/parallel/model_chunk.h"

namespace muoncore::parallel {

// One buffer of a chunk: parameters of one dtype that are replicated over the same ranks and are
// all whole or may all be cut.
struct BufferPlan {
  std::string name;            // "chunk 0, float, whole"
  std::vector<size_t> params;  // indices into the chunk; placements index this list
  BufferLayout layout;
  bool expert = false;
  bool sharded = true;
  at::ScalarType grad_dtype = at::kFloat;
};

// While it lives, backward passes only accumulate: nothing is reduced.
class NoSync {
 public:
  explicit NoSync(BucketSchedule& schedule) : schedule_(schedule) { schedule_.set_sync(false); }
  ~NoSync() { schedule_.set_sync(true); }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  BucketSchedule& schedule_;
};

class DistributedDataParallel {
 public:
  // first_param: the index of the chunk's first parameter among those of the whole model. The
  // schedule must outlive this; its buckets are those of all chunks, added by add_to_schedule from
  // the last chunk to the first. Parameters that do not require gradients have no place here:
  // Error.
  DistributedDataParallel(const ModelChunk& chunk, const std::vector<BufferPlan>& plans,
                          const ParallelGroups& groups, BucketSchedule& schedule,
                          size_t first_param);
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  void add_to_schedule();
  const std::vector<std::unique_ptr<ParamAndGradBuffer>>& buffers() const { return buffers_; }

  // Without autograd: adds to the gradient of parameter i of the chunk, as a backward pass would.
  void add_gradient(size_t i, const at::Tensor& gradient);

  void broadcast_params();  // from rank 0 of each buffer's group. Collective.

  // Under overlap_param_gather a parameter is complete only after this: call it before the forward
  // pass first reads it. i: of the chunk.
  void wait_param(size_t i) { schedule_.wait_param(first_param_ + i); }

 private:
  std::vector<ChunkParam> params_;
  BucketSchedule& schedule_;
  size_t first_param_;
  std::vector<std::unique_ptr<ParamAndGradBuffer>> buffers_;
};

}  // namespace muoncore::parallel
