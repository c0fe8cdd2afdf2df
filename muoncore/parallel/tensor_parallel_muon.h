// Muon on tensor-parallel shards. Each rank holds a shard of every cut parameter (gradient and
// momentum likewise), and orthogonalizes with the others of its group what one process would.
//
// Per matrix [R, C] with n <= m its sides, t ranks, s steps, e bytes per element (4; 8 for fp64), g
// those of the iteration (2 under medium, else 4); per rank and step, mean over ranks:
//
//   tp_mode        bytes sent                    flops of the products       result
//   blockwise      0                             shard's s (4 n'^2 m' + 2 n'^3)   depends on t
//   duplicated     (t-1)/t RC e                  s (4 n^2 m + 2 n^3)         one process, bitwise
//   distributed    s 2(t-1)/t n^2 g (+)          s (4 n^2 m / t + 2 n^3)     one process, rounding
//   layer_sharded  2(t-1)/t RC e / t             s (4 n^2 m + 2 n^3) / t     one process, bitwise
//
// (+) 2(t-1)/t RC e / t more where the cut side is the shorter one. layer_sharded needs at least t
// matrices of like cost to share them out (collectives: 2 per call), and is then the cheapest in
// both columns. distributed is for few matrices that are long (n << m) or too large for one rank
// (s + 2 collectives per call). duplicated has the fewest collectives (1 per call): small matrices,
// or few. blockwise is for experiments: see optim/optimizer_config.h for the default's reason.
//
// Parameters that are not cut (partition_dim -1, experts cut along the batch, heads cut along the
// rows) are updated by each rank as in one process; replicas stay equal bit for bit. An expert's
// weights whose group is another (expert tensor parallelism) belong to a TensorParallelMuon of
// their own over that group. Source: Megatron-Core 0.19.2 `TensorParallelMuon`, for the first three
// modes; layer_sharded follows the idea of its pull request 6683.
//
// (Collectives of up to 32 KiB send (t-1) times their size; the agreement of each step is one.)
#pragma once

#include <vector>

#include "muoncore/comm/group.h"
#include "muoncore/optim/muon.h"
#include "muoncore/parallel/tensor_parallel.h"

namespace muoncore::parallel {

struct TensorParallelOptions {
  TpMode mode = TpMode::kDuplicated;
  // As Megatron-Core 0.19.2, for parity: blockwise scales by the shard's shape instead of the
  // logical one, and distributed never cuts a matrix along its other side.
  bool upstream = false;
};

// set_spec takes the shard's spec (parallel::shard_spec). Every rank of the group adds the same cut
// parameters, specs and options in the same order, and steps as often as the others; what is not
// cut may differ (experts spread over the ranks).
//
// A step in which a cut parameter has a gradient is collective, and throws Error on every rank and
// touches nothing where the ranks disagree: on cut parameters, their specs, learning rates or
// StepArgs, or where some have a gradient of one and some have none (without a gradient anywhere it
// is skipped, as in Muon). A rank without any gradient of cut parameters does not enter it: the
// others then wait for it until the group's time-out.
//
// Where a matrix is cut, refused (but for blockwise, where the shard is the matrix): second moments
// other than adamuon, hyperball, adamw_match measured and stochastic rounding, which need more than
// the shard; and, under distributed, pre- and post-transforms. All else is element by element, or
// sees whole matrices.
class TensorParallelMuon : public optim::Muon {
 public:
  // tp outlives the optimizer. A group of one rank makes this a plain Muon.
  TensorParallelMuon(comm::Group& tp, TensorParallelOptions options,
                     const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                     optim::MuonOptions defaults = {});

  void step_with(const optim::StepArgs& args) override;

 protected:
  std::vector<at::Tensor> orthogonalize(const std::vector<optim::MuonPart>& parts,
                                        const muon::OrthogonalizeOptions& options) override;
  optim::MatrixShape scale_shape(const optim::MuonPart& part) const override;
  void check_supported(const optim::MuonOptions& options) const override;
  int64_t elements_per_call() const override;
  bool is_shared(const ParamSpec& spec) const override;  // cut over several ranks

 private:
  void check_shards() const;
  void check_agreement(const optim::StepArgs& args);

  comm::Group& tp_;
  TensorParallelOptions options_;
};

}  // namespace muoncore::parallel
