// The collectives over a transport, each run to its end in the calling thread. Arguments are
// checked in group.cpp; shapes and meanings stand in group.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "muoncore/comm/rank_order.h"
#include "muoncore/comm/transport.h"

namespace muoncore::comm {

// Where a collective runs: this rank's place and its transport.
struct Port {
  Transport& transport;
  int64_t rank = 0;
  int64_t size = 1;
};

// `total` elements over `ranks`, as evenly as whole elements allow, the longer shards first.
std::vector<int64_t> even_shards(int64_t total, int64_t ranks);

// A tensor up to this size is reduced in one round (each rank sends it whole to each other rank).
constexpr int64_t kOneRoundBytes = 32 * 1024;

void run_all_reduce(const Port& port, const at::Tensor& flat, ReduceOp op);
void run_reduce_scatter(const Port& port, const at::Tensor& output, const at::Tensor& input,
                        const std::vector<int64_t>& shard_sizes, ReduceOp op);
void run_all_gather(const Port& port, const at::Tensor& buffer,
                    const std::vector<int64_t>& shard_sizes);
void run_all_to_all(const Port& port, const at::Tensor& output,
                    const std::vector<int64_t>& recv_sizes, const at::Tensor& input,
                    const std::vector<int64_t>& send_sizes);
void run_broadcast(const Port& port, const at::Tensor& flat, int64_t root);

}  // namespace muoncore::comm
