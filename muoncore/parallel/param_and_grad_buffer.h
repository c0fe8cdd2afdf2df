// The flat memory of data parallelism: parameters are views of one buffer, their gradients of
// another, and both travel in buckets. Where everything lies is a BufferLayout (param_layout.h).
//
// Sharded (ZeRO-1, layer-wise): a bucket's gradients are reduced so that each rank gets the sum of
// its own shard, and what other shards then hold is of no meaning; after the step each rank has
// updated its shard of the parameters, and the rest is gathered. Not sharded: every rank gets all
// sums, and nothing is gathered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muoncore/comm/group.h"
#include "muoncore/optim/owned_piece.h"
#include "muoncore/parallel/param_layout.h"

namespace muoncore::parallel {

// One parameter, at the place of the layout's index.
struct BufferParam {
  std::string name;
  at::Tensor tensor;  // contiguous leaf; all of one dtype
  size_t index = 0;   // among the parameters of the whole optimizer
};

class ParamAndGradBuffer {
 public:
  struct Options {
    std::string name;  // in errors
    BufferLayout layout;
    bool sharded = true;
    at::ScalarType grad_dtype = at::kFloat;
    comm::Group* group = nullptr;  // null: one rank
  };

  // Sharded: the parameters' values move into the buffer and their data becomes views of it (the
  // tensors stay the same). In every case their .grad becomes a view of the gradient buffer, into
  // which autograd accumulates. Throws Error on parameters that do not fit the layout.
  ParamAndGradBuffer(std::vector<BufferParam> params, Options options);
  ~ParamAndGradBuffer();  // the parameters keep their values, and lose their gradients
  ParamAndGradBuffer(const ParamAndGradBuffer&) = delete;
  ParamAndGradBuffer& operator=(const ParamAndGradBuffer&) = delete;

  const std::string& name() const { return options_.name; }
  const BufferLayout& layout() const { return options_.layout; }
  const std::vector<BufferParam>& params() const { return params_; }
  bool sharded() const { return options_.sharded; }
  comm::Group* group() const { return options_.group; }
  const at::Tensor& param_data() const { return param_data_; }  // flat; undefined if not sharded
  const at::Tensor& grad_data() const { return grad_data_; }    // flat

  // The gradients of one bucket: sums over the group, of this rank's shard or of all. Collective.
  comm::WorkPtr start_grad_reduce(size_t bucket);
  // What the above leaves meaningful here, flat.
  at::Tensor reduced_grads(size_t bucket) const;
  // The other ranks' shards of one bucket's parameters. Collective. Null where there is nothing to
  // gather.
  comm::WorkPtr start_param_gather(size_t bucket);
  // This rank's parameters from those of rank 0 of the group. Collective.
  void broadcast_params();

  void zero_grads();
  // Throws Error, naming the parameter, when one or its gradient no longer lies in the buffer.
  void check_views() const;

  // What this rank updates: of each parameter the part in its shard (whole parameters of a `whole`
  // layout), or all of each where nothing is sharded. Masters are made here: copies in fp32 of bf16
  // parameters, else views of the buffer. `bucket`: of each piece.
  struct Piece {
    optim::OwnedPiece piece;
    size_t bucket = 0;
  };
  std::vector<Piece> owned_pieces() const;

 private:
  at::Tensor grad_view(size_t placement) const;
  void adopt(size_t placement);
  optim::OwnedPiece make_piece(const Placement& placement, int64_t begin, int64_t end) const;
  std::vector<int64_t> shard_sizes(size_t bucket) const;

  std::vector<BufferParam> params_;
  Options options_;
  at::Tensor param_data_, grad_data_;
};

}  // namespace muoncore::parallel
