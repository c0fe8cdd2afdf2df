// What one rank updates of one parameter, and how ranks act together in a step. Both are made by
// `parallel/`; on one rank without buffers every piece is a whole parameter and nothing is
// exchanged.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace muoncore::optim {

// Elements [begin, end) of a parameter as it lies on this rank, flattened: all of it for Muon,
// which needs whole matrices, any slice of it for AdamW. Other ranks may own the rest; a rank may
// own nothing.
struct OwnedPiece {
  size_t param = 0;  // index among the chain's parameters
  int64_t begin = 0, end = 0;
  // The leaf that the optimizer updates: fp32 (fp64 for an fp64 parameter), of the parameter's
  // shape where the piece is whole, else 1-D. It is the parameter's own memory, or a copy in
  // higher precision.
  at::Tensor master = {};
  // The gradient, of master's shape; undefined: the parameter's .grad at each step.
  at::Tensor grad = {};
  // Where the master is rounded into after a step; undefined: the master is the parameter's memory.
  at::Tensor target = {};
  // False on all ranks but one where several update the same elements: they enter the norm once.
  bool counted = true;
  int64_t matrices = 0;  // logical matrices that Muon orthogonalizes in it; 0 for AdamW
  // False on all ranks but one that orthogonalize the same matrix, or shares of it.
  bool counts_matrices = true;
};

// What the ranks of a training do together around the optimizers' work. Every method is collective
// unless it says otherwise: all ranks call it, in the same order, also ranks that own nothing.
class StepExchange {
 public:
  virtual ~StepExchange() = default;

  // Finishes the reduction of gradients: after it those of owned pieces are final.
  virtual void finish_grad_sync() = 0;
  // Local, after finish_grad_sync: whether a gradient of this parameter arrived on any rank.
  virtual bool has_gradient(size_t param) const = 0;
  // record <- the sum of all ranks' records, element by element, exactly.
  virtual void sum(std::vector<int64_t>& record) = 0;
  // The owned pieces of this phase have their new values: starts handing them to the other ranks.
  virtual void start_param_gather(size_t phase) = 0;
  // The end of a step: waits until every parameter is complete, unless gathers overlap the next
  // forward pass.
  virtual void finish_step() = 0;
  // Local: waits until every parameter is complete.
  virtual void wait_params() = 0;
  // As start_param_gather for the buckets that hold one parameter, and waits.
  virtual void gather_param(size_t param) = 0;
  // Local: gradients become zero, and none counts as arrived.
  virtual void zero_grad() = 0;

  // Parameters fall into sets that are replicated over the same ranks (dense, expert). Local: how
  // many sets there are, and the one of a parameter.
  virtual size_t replica_sets() const = 0;
  virtual size_t replica_set(size_t param) const = 0;
  // The bytes of all ranks that hold the parameters of a set, in rank order.
  virtual std::vector<std::vector<char>> all_gather_bytes(size_t set,
                                                          const std::vector<char>& own) = 0;
};

}  // namespace muoncore::optim
