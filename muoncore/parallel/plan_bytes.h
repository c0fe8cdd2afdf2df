// What a layout makes each rank hold and send, in bytes. The formulas are checked against buffers,
// optimizer states and counted messages where those are tested.
#pragma once

#include <cstdint>

#include "muoncore/parallel/param_layout.h"

namespace muoncore::parallel {

// Bytes per element. Optimizer states are fp32; masters exist where parameters are narrower.
struct ElementSizes {
  int64_t param = 2;
  int64_t grad = 4;
};

struct RankBytes {
  int64_t parameters = 0, gradients = 0;  // whole buffers, padding too
  int64_t masters = 0;                    // of what the rank owns, as all below; no padding
  int64_t momentum = 0;                   // Muon's, of the whole parameters it owns
  int64_t exp_avg = 0, exp_avg_sq = 0;    // AdamW's, of its shards of `cut`
  int64_t optimizer() const { return masters + momentum + exp_avg + exp_avg_sq; }
  int64_t total() const { return parameters + gradients + optimizer(); }
  RankBytes& operator+=(const RankBytes& other);
};

RankBytes rank_bytes(const ParamLayout& layout, int64_t rank, const ElementSizes& sizes);

// What a rank sends to others in one step: of each bucket's gradients the shards of all others
// (all-to-all, then a local sum), and its own shard of the new parameters to every other.
int64_t bytes_sent(const ParamLayout& layout, int64_t rank, const ElementSizes& sizes);

}  // namespace muoncore::parallel
