// What a run will cost each rank, counted without a process group: who owns what, how even the
// Newton-Schulz work is, what is stored and sent, with AdamW alone (ZeRO-1) and with Muon
// (layer-wise) beside AdamW.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "muoncore/parallel/param_layout.h"
#include "muoncore/parallel/plan_bytes.h"
#include "muoncore/parallel/plan_models.h"

namespace muoncore::parallel {

// Ranks: dp * tp * pp. Experts are spread over the ranks of a stage again: expert_dp copies of ep
// shares, each cut over etp ranks.
struct ParallelSizes {
  int64_t dp = 1, tp = 1, ep = 1, pp = 1, etp = 1;
  int64_t world() const { return dp * tp * pp; }
  int64_t expert_dp() const { return world() / (etp * ep * pp); }
};

// Throws Error naming both numbers where a size does not divide what it cuts: heads and widths by
// tp, experts by ep, their widths by etp, layers by pp, ranks by etp * ep * pp; and above
// kMaxWorld.
constexpr int64_t kMaxWorld = 16384;
void check_sizes(const PlanModel& model, const ParallelSizes& sizes);

struct PlanOptions {
  ParallelSizes sizes;
  LayoutKind layout = LayoutKind::kBalanced;
  // Elements; none: one bucket. Later pipeline stages always have one, as in Megatron: their
  // gradients are ready when the pipeline drains.
  std::optional<int64_t> bucket_size = std::nullopt;
  ElementSizes bytes;
  bool split_blocks = true;  // fused parameters are orthogonalized block by block (muon_split_qkv)
};

// Of a cost, over all ranks. No owners can be found that make it less than `bound`: the busiest
// rank has at least the mean, and at least the largest parameter, and, where more than j parameters
// fall on each of r ranks, at least the j + 1 smallest of the j * r + 1 largest.
struct Imbalance {
  double imbalance = 1;  // largest load / mean load; 1 without Muon parameters
  double bound = 1;
};

struct ArmPlan {
  std::vector<RankBytes> bytes;  // per rank of the world: tp fastest, then dp, then pp
  std::vector<int64_t> sent;     // over data parallelism, per step
};

struct Plan {
  int64_t params = 0, muon_params = 0;  // of the whole model
  int64_t muon_matrices = 0;            // parameters as stored
  ArmPlan adamw, muon;
  Imbalance ns;           // ns_cost of whole parameters as stored: what `balanced` balances
  Imbalance ns_actual;    // of the matrices that are orthogonalized
  Imbalance ns_upstream;  // of Megatron's own measure, max(rows, cols) * min(rows, cols)^2
  int64_t ranks_without_matrices = 0;
  double padding_fraction = 0;      // of the buffers of Muon's parameters: padding / parameters
  double padding_fraction_cut = 0;  // of the buffers of AdamW's, in the Muon arm
  double adamw_minus_muon_gib = 0;  // RankBytes::total, mean over ranks
  uint64_t layout_hash = 0;         // of all layouts of the Muon arm
};

// Tensor-parallel Muon is planned as `duplicated`: every rank of a tensor-parallel group
// orthogonalizes the whole matrix, so costs are those of logical shapes. Throws as check_sizes.
Plan make_plan(const PlanModel& model, const PlanOptions& options);

}  // namespace muoncore::parallel
