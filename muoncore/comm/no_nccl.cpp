// In place of nccl.cpp where CUDA was not found (cmake/Nccl.cmake).
#include "muoncore/comm/nccl.h"
#include "muoncore/core/check.h"

namespace muoncore::comm {

bool nccl_is_built() { return false; }

std::unique_ptr<GroupFactory> make_nccl_factory(const Store&, int64_t rank, int64_t world_size,
                                                const NcclOptions& options) {
  fail(
      "rank {} of {} asked for NCCL on cuda:{}, which this build does not have: when it was "
      "configured, no CUDA build of torch with the headers of CUDA and NCCL was found; use gloo, "
      "or "
      "configure with MUONCORE_PYTHON set to an interpreter that has such a torch, and CUDA_HOME "
      "to "
      "the toolkit",
      rank, world_size, options.local_rank);
}

}  // namespace muoncore::comm
