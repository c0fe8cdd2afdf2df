// What upstream does and we do otherwise: used by `muoncore parity` to replay its goldens, and
// nowhere else.
#pragma once

#include "muoncore/optim/muon.h"

namespace muoncore::cli {

struct UpstreamProfile {
  const char* name = "megatron-0.19.2";
  double ns_eps = 1e-7;        // x / max(norm, eps); ours is scale-free
  bool upstream_exact = true;  // coefficient sets without our safety factors and guards
  // blockwise scales by the shard's shape; distributed never cuts along the other side
  bool tensor_parallel_as_upstream = true;
  bool decay_vectors_without_scheduler = true;  // wd_mult reaches a group only through a scheduler
};

inline constexpr UpstreamProfile kMegatron0192;

}  // namespace muoncore::cli
