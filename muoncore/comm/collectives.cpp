#include "muoncore/comm/collectives.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "muoncore/comm/reduce_by_operators.h"

namespace muoncore::comm {
namespace {

// Bytes from one peer that are received before they are summed: two such rounds are under way at a
// time, so that one is on the wire while the other is summed, and the scratch stays in the caches.
constexpr int64_t kRoundBytes = 1 << 20;

std::vector<int64_t> offsets_of(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> offsets;
  int64_t offset = 0;
  for (int64_t size : sizes) {
    offsets.push_back(offset);
    offset += size;
  }
  return offsets;
}

void add(std::vector<Transfer>& transfers, const at::Tensor& tensor, int64_t peer, bool outgoing) {
  if (tensor.numel() > 0) transfers.push_back({tensor, peer, outgoing});
}

void exchange(const Port& port, std::vector<Transfer> transfers) {
  if (!transfers.empty()) port.transport.start(std::move(transfers), Lane::kCollective)->wait();
}

// One round of a reduce-scatter: elements [begin, begin + length) of every shard.
struct Round {
  std::vector<at::Tensor> rows;  // of this rank's shard, in rank order
  at::Tensor output;
  std::unique_ptr<Exchange> exchange;
};

// On the CPU without ATen, whose copies and sums would start a thread pool of this worker's own.
void copy_bytes(const at::Tensor& to, const at::Tensor& from) {
  if (!from.is_cpu()) {
    to.copy_(from);
    return;
  }
  if (from.nbytes() > 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
}

void reduce(const at::Tensor& output, const std::vector<at::Tensor>& rows, ReduceOp op) {
  if (output.is_cpu())
    reduce_in_rank_order(output, rows, op);
  else
    reduce_by_operators(output, rows, op);
}

}  // namespace

std::vector<int64_t> even_shards(int64_t total, int64_t ranks) {
  std::vector<int64_t> sizes(ranks, total / ranks);
  for (int64_t r = 0; r < total % ranks; ++r) ++sizes[r];
  return sizes;
}

void run_reduce_scatter(const Port& port, const at::Tensor& output, const at::Tensor& input,
                        const std::vector<int64_t>& shard_sizes, ReduceOp op) {
  const std::vector<int64_t> offsets = offsets_of(shard_sizes);
  const int64_t step = kRoundBytes / static_cast<int64_t>(input.element_size());
  const int64_t longest = *std::max_element(shard_sizes.begin(), shard_sizes.end());
  const int64_t own = shard_sizes[port.rank];
  const int64_t scratch_row = std::min(step, own);
  at::Tensor scratch[2];  // made when first needed

  auto start = [&](int64_t index) {
    const int64_t begin = index * step;
    auto slice = [&](int64_t shard) {
      int64_t length = std::clamp<int64_t>(shard_sizes[shard] - begin, 0, step);
      return length == 0 ? input.narrow(0, 0, 0) : input.narrow(0, offsets[shard] + begin, length);
    };
    at::Tensor& rows = scratch[index % 2];
    if (!rows.defined()) rows = at::empty({port.size - 1, scratch_row}, input.options());
    const int64_t length = std::clamp<int64_t>(own - begin, 0, step);
    Round round;
    std::vector<Transfer> transfers;
    for (int64_t r = 0; r < port.size; ++r) {
      if (r == port.rank) {
        round.rows.push_back(slice(r));
        continue;
      }
      round.rows.push_back(rows.select(0, r < port.rank ? r : r - 1).narrow(0, 0, length));
      add(transfers, round.rows.back(), r, /*outgoing=*/false);
      add(transfers, slice(r), r, /*outgoing=*/true);
    }
    round.output = length == 0 ? output.narrow(0, 0, 0) : output.narrow(0, begin, length);
    if (!transfers.empty())
      round.exchange = port.transport.start(std::move(transfers), Lane::kCollective);
    return round;
  };

  const int64_t rounds = (longest + step - 1) / step;
  if (rounds == 0) return;
  Round now = start(0);
  for (int64_t index = 0; index < rounds; ++index) {
    Round next;
    if (index + 1 < rounds) next = start(index + 1);
    if (now.exchange) now.exchange->wait();
    if (now.output.numel() > 0) reduce(now.output, now.rows, op);
    now = std::move(next);
  }
}

void run_all_gather(const Port& port, const at::Tensor& buffer,
                    const std::vector<int64_t>& shard_sizes) {
  const std::vector<int64_t> offsets = offsets_of(shard_sizes);
  auto shard = [&](int64_t r) { return buffer.narrow(0, offsets[r], shard_sizes[r]); };
  std::vector<Transfer> transfers;
  for (int64_t r = 0; r < port.size; ++r) {
    if (r == port.rank) continue;
    add(transfers, shard(r), r, /*outgoing=*/false);
    add(transfers, shard(port.rank), r, /*outgoing=*/true);
  }
  exchange(port, std::move(transfers));
}

void run_all_reduce(const Port& port, const at::Tensor& flat, ReduceOp op) {
  if (flat.numel() == 0) return;
  if (static_cast<int64_t>(flat.nbytes()) > kOneRoundBytes) {
    const std::vector<int64_t> sizes = even_shards(flat.numel(), port.size);
    at::Tensor own = flat.narrow(0, offsets_of(sizes)[port.rank], sizes[port.rank]);
    run_reduce_scatter(port, own, flat, sizes, op);
    run_all_gather(port, flat, sizes);
    return;
  }
  at::Tensor scratch = at::empty({port.size, flat.numel()}, flat.options());
  std::vector<at::Tensor> rows;
  std::vector<Transfer> transfers;
  for (int64_t r = 0; r < port.size; ++r) {
    rows.push_back(r == port.rank ? flat : scratch.select(0, r));
    if (r == port.rank) continue;
    add(transfers, rows[r], r, /*outgoing=*/false);
    add(transfers, flat, r, /*outgoing=*/true);
  }
  exchange(port, std::move(transfers));
  reduce(flat, rows, op);
}

void run_all_to_all(const Port& port, const at::Tensor& output,
                    const std::vector<int64_t>& recv_sizes, const at::Tensor& input,
                    const std::vector<int64_t>& send_sizes) {
  const std::vector<int64_t> recv_offsets = offsets_of(recv_sizes);
  const std::vector<int64_t> send_offsets = offsets_of(send_sizes);
  std::vector<Transfer> transfers;
  for (int64_t r = 0; r < port.size; ++r) {
    at::Tensor to = output.narrow(0, recv_offsets[r], recv_sizes[r]);
    at::Tensor from = input.narrow(0, send_offsets[r], send_sizes[r]);
    if (r == port.rank) {
      copy_bytes(to, from);
      continue;
    }
    add(transfers, to, r, /*outgoing=*/false);
    add(transfers, from, r, /*outgoing=*/true);
  }
  exchange(port, std::move(transfers));
}

void run_broadcast(const Port& port, const at::Tensor& flat, int64_t root) {
  std::vector<Transfer> transfers;
  for (int64_t r = 0; r < port.size; ++r)
    if (port.rank == root && r != root) add(transfers, flat, r, /*outgoing=*/true);
  if (port.rank != root) add(transfers, flat, root, /*outgoing=*/false);
  exchange(port, std::move(transfers));
}

}  // namespace muoncore::comm
