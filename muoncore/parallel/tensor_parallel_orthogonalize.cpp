#include "muoncore/parallel/tensor_parallel_orthogonalize.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <numeric>

#include "muoncore/parallel/param_layout.h"
#include "muoncore/parallel/tensor_parallel_exchange.h"

namespace muoncore::parallel {
namespace {

int64_t dim_of(Cut cut) { return cut == Cut::kRows ? -2 : -1; }

// Rank r's share of a whole matrix.
at::Tensor share_of(const at::Tensor& whole, Cut cut, int64_t ranks, int64_t rank) {
  const int64_t size = whole.size(dim_of(cut)) / ranks;
  return whole.narrow(dim_of(cut), rank * size, size);
}

// Piece k of every rank, side by side.
at::Tensor join(const std::vector<std::vector<at::Tensor>>& by_rank, size_t k, Cut cut) {
  std::vector<at::Tensor> pieces;
  for (const auto& list : by_rank) pieces.push_back(list[k]);
  return at::cat(pieces, dim_of(cut));
}

// One matrix to be dealt to a rank: this rank's share of it, from shares[index].
struct Unit {
  at::Tensor share;
  Cut cut;
  size_t index;
  bool in_batch;
  int64_t owner;
};

// Every slice of every share, with its owner.
std::vector<Unit> deal(const std::vector<Share>& shares, int64_t ranks) {
  std::vector<Unit> units;
  std::vector<int64_t> costs;
  for (size_t index = 0; index < shares.size(); ++index) {
    const auto& [direction, cut] = shares[index];
    const bool in_batch = direction.dim() == 3;
    const at::Tensor batch = in_batch ? direction : direction.unsqueeze(0);
    for (int64_t i = 0; i < batch.size(0); ++i) {
      units.push_back({batch.select(0, i), cut, index, in_batch, 0});
      Shape whole = units.back().share.sizes().vec();
      whole[cut == Cut::kRows ? 0 : 1] *= ranks;
      costs.push_back(ns_cost(whole));
    }
  }
  const std::vector<int64_t> owners = deal_by_cost(costs, ranks);
  for (size_t u = 0; u < units.size(); ++u) units[u].owner = owners[u];
  return units;
}

// Orthogonalizes the matrices of `units`, whole. What were slices of one batch stay one: the same
// function as in one process, which is the same in every bit.
std::vector<at::Tensor> orthogonalize_units(const std::vector<at::Tensor>& whole,
                                            const std::vector<Unit>& units,
                                            const muon::OrthogonalizeOptions& options) {
  std::vector<at::Tensor> inputs;
  std::vector<size_t> sizes;  // matrices in each
  for (size_t k = 0; k < whole.size();) {
    size_t end = k + 1;
    while (end < whole.size() && units[end].index == units[k].index) ++end;
    const std::vector<at::Tensor> slices(whole.begin() + static_cast<std::ptrdiff_t>(k),
                                         whole.begin() + static_cast<std::ptrdiff_t>(end));
    inputs.push_back(units[k].in_batch ? at::stack(slices) : slices[0]);
    sizes.push_back(end - k);
    k = end;
  }
  if (inputs.empty()) return {};
  const std::vector<at::Tensor> results = muon::orthogonalize_directions(inputs, options);
  std::vector<at::Tensor> out;
  for (size_t k = 0; k < results.size(); ++k)
    for (size_t i = 0; i < sizes[k]; ++i)
      out.push_back(results[k].dim() == 3 ? results[k].select(0, static_cast<int64_t>(i))
                                          : results[k]);
  return out;
}

}  // namespace

std::vector<int64_t> deal_by_cost(const std::vector<int64_t>& costs, int64_t ranks) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  std::vector<int64_t> loads(static_cast<size_t>(ranks), 0), owners(costs.size());
  for (size_t i : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    owners[i] = least - loads.begin();
    *least += costs[i];
  }
  return owners;
}

std::vector<at::Tensor> orthogonalize_duplicated(const std::vector<Share>& shares,
                                                 const muon::OrthogonalizeOptions& options,
                                                 comm::Group& group) {
  at::NoGradGuard no_grad;
  if (shares.empty()) return {};
  std::vector<at::Tensor> own;
  for (const Share& share : shares) own.push_back(share.direction);
  const auto gathered = all_gather(group, own, own[0].options(), "directions of Muon's matrices");
  std::vector<at::Tensor> whole;
  for (size_t k = 0; k < shares.size(); ++k) whole.push_back(join(gathered, k, shares[k].cut));
  std::vector<at::Tensor> out = muon::orthogonalize_directions(whole, options);
  for (size_t k = 0; k < shares.size(); ++k)
    out[k] = share_of(out[k], shares[k].cut, group.size(), group.rank());
  return out;
}

std::vector<at::Tensor> orthogonalize_layer_sharded(const std::vector<Share>& shares,
                                                    const muon::OrthogonalizeOptions& options,
                                                    comm::Group& group) {
  at::NoGradGuard no_grad;
  if (shares.empty()) return {};
  const auto ranks = static_cast<size_t>(group.size());
  const at::TensorOptions kind = shares[0].direction.options();
  const std::vector<Unit> units = deal(shares, group.size());
  std::vector<std::vector<at::Tensor>> pieces(ranks);
  std::vector<Shape> own_shapes;
  std::vector<Unit> own;
  for (const Unit& unit : units) {
    pieces[static_cast<size_t>(unit.owner)].push_back(unit.share);
    if (unit.owner != group.rank()) continue;
    own_shapes.push_back(unit.share.sizes().vec());
    own.push_back(unit);
  }
  const auto received = exchange(group, pieces, std::vector<std::vector<Shape>>(ranks, own_shapes),
                                 kind, "directions of Muon's matrices to their ranks");
  std::vector<at::Tensor> whole;
  for (size_t k = 0; k < own.size(); ++k) whole.push_back(join(received, k, own[k].cut));
  whole = orthogonalize_units(whole, own, options);

  std::vector<std::vector<at::Tensor>> results(ranks);
  std::vector<std::vector<Shape>> shapes(ranks);
  for (size_t rank = 0; rank < ranks; ++rank)
    for (size_t k = 0; k < whole.size(); ++k)
      results[rank].push_back(
          share_of(whole[k], own[k].cut, group.size(), static_cast<int64_t>(rank)));
  for (const Unit& unit : units)
    shapes[static_cast<size_t>(unit.owner)].push_back(unit.share.sizes().vec());
  const auto back =
      exchange(group, results, shapes, kind, "updates of Muon's matrices back to their shards");

  std::vector<size_t> next(ranks, 0);
  std::vector<at::Tensor> out;
  auto unit = units.begin();
  for (const Share& share : shares) {
    out.push_back(at::empty(share.direction.sizes(), kind));
    const at::Tensor batch = out.back().dim() == 3 ? out.back() : out.back().unsqueeze(0);
    for (int64_t i = 0; i < batch.size(0); ++i, ++unit) {
      const auto owner = static_cast<size_t>(unit->owner);
      batch.select(0, i).copy_(back[owner][next[owner]++]);
    }
  }
  return out;
}

}  // namespace muoncore::parallel
