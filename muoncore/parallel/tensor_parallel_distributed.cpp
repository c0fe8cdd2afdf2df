// Newton-Schulz on shares of matrices. Source of the scheme: Emerging-Optimizers 0.3.0
// `newton_schulz_tp`, mode distributed; the recut is ours.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/ldexp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/muon/coefficients.h"
#include "muoncore/parallel/tensor_parallel_exchange.h"
#include "muoncore/parallel/tensor_parallel_orthogonalize.h"

namespace muoncore::parallel {
namespace {

// Rank r's chunk of a side of `size`: the first size % ranks ranks take one more.
struct Chunk {
  int64_t start, size;
};
Chunk chunk_of(int64_t size, int64_t ranks, int64_t rank) {
  const int64_t each = size / ranks, more = size % ranks;
  return {rank * each + std::min(rank, more), each + (rank < more ? 1 : 0)};
}

// A share in the form of the iteration, [batch, n, m_of_this_rank]: the cut side comes last.
struct Wide {
  at::Tensor x;
  bool transposed = false;  // of the caller's share
  bool recut = false;       // then [batch, m, n_of_this_rank]
};

Wide widen(const Share& share) {
  at::Tensor x = share.direction.dim() == 3 ? share.direction : share.direction.unsqueeze(0);
  const bool transposed = share.cut == Cut::kRows;
  // Strided slices would be copied in every product.
  return {(transposed ? x.mT() : x).contiguous(), transposed, false};
}

// From shares [batch, n, m / ranks] to shares [batch, m, n of this rank].
void recut(std::vector<Wide*>& parts, comm::Group& group) {
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<std::vector<at::Tensor>> pieces(ranks);
  std::vector<std::vector<Shape>> shapes(ranks);
  for (Wide* part : parts)
    for (size_t r = 0; r < ranks; ++r) {
      const int64_t n = part->x.size(1);
      const Chunk there = chunk_of(n, group.size(), static_cast<int64_t>(r));
      const Chunk here = chunk_of(n, group.size(), group.rank());
      pieces[r].push_back(part->x.narrow(1, there.start, there.size));
      shapes[r].push_back({part->x.size(0), here.size, part->x.size(2)});
    }
  const auto received = exchange(group, pieces, shapes, parts[0]->x.options(),
                                 "directions of Muon's matrices to the other cut");
  for (size_t k = 0; k < parts.size(); ++k) {
    std::vector<at::Tensor> row;
    for (size_t r = 0; r < ranks; ++r) row.push_back(received[r][k]);
    parts[k]->x = at::cat(row, 2).mT().contiguous();
    parts[k]->recut = true;
  }
}

// And back; n_whole[k]: the side that recut cut.
void undo_recut(std::vector<Wide*>& parts, const std::vector<int64_t>& n_whole,
                comm::Group& group) {
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<std::vector<at::Tensor>> pieces(ranks);
  std::vector<std::vector<Shape>> shapes(ranks);
  for (size_t k = 0; k < parts.size(); ++k)
    for (size_t r = 0; r < ranks; ++r) {
      const at::Tensor x = parts[k]->x.mT();  // [batch, n of this rank, m]
      const int64_t m = x.size(2) / group.size();
      const Chunk there = chunk_of(n_whole[k], group.size(), static_cast<int64_t>(r));
      pieces[r].push_back(x.narrow(2, static_cast<int64_t>(r) * m, m));
      shapes[r].push_back({x.size(0), there.size, m});
    }
  const auto received = exchange(group, pieces, shapes, parts[0]->x.options(),
                                 "updates of Muon's matrices back to their cut");
  for (size_t k = 0; k < parts.size(); ++k) {
    std::vector<at::Tensor> column;
    for (size_t r = 0; r < ranks; ++r) column.push_back(received[r][k]);
    parts[k]->x = at::cat(column, 1);
    parts[k]->recut = false;
  }
}

// One number per slice of every part, reduced over the ranks; views [batch, 1, 1] of the result.
std::vector<at::Tensor> reduce_per_slice(const std::vector<at::Tensor>& per_part, comm::ReduceOp op,
                                         comm::Group& group) {
  std::vector<Shape> shapes;
  for (const at::Tensor& x : per_part) shapes.push_back({x.size(0), 1, 1});
  FlatTensors flat = flat_tensors(shapes, per_part[0].options());
  for (size_t k = 0; k < per_part.size(); ++k) flat.views[k].copy_(per_part[k].view(shapes[k]));
  if (flat.buffer.numel() > 0)
    group.all_reduce(flat.buffer, op, "norms of Muon's matrices")->wait();
  return flat.views;
}

// x <- x divided by a power of two near the greatest element of the whole matrix: as
// muon::normalize_scale_free, over the ranks.
void scale_by_power(std::vector<Wide>& parts, comm::Group& group) {
  std::vector<at::Tensor> largest;
  for (const Wide& part : parts) {
    const at::Tensor& x = part.x;
    largest.push_back(x.numel() > 0 ? at::amax(x.abs(), {1, 2})
                                    : at::zeros({x.size(0)}, x.options()));
  }
  largest = reduce_per_slice(largest, comm::ReduceOp::kMax, group);
  for (size_t k = 0; k < parts.size(); ++k) {
    const at::Tensor exponent = std::get<1>(at::frexp(largest[k]));
    parts[k].x = parts[k].x.div(at::ldexp(at::ones_like(largest[k]), exponent - 1));
  }
}

void normalize(std::vector<Wide>& parts, const muon::NewtonSchulzOptions& options,
               comm::Group& group) {
  if (!options.eps) scale_by_power(parts, group);
  std::vector<at::Tensor> squares;
  for (const Wide& part : parts)
    squares.push_back(at::linalg_vector_norm(part.x, 2, at::IntArrayRef({1, 2})).square());
  squares = reduce_per_slice(squares, comm::ReduceOp::kSum, group);
  for (size_t k = 0; k < parts.size(); ++k)
    parts[k].x = parts[k].x.div(squares[k].sqrt().clamp_min_(options.eps.value_or(1.0)));
}

// X X^T of every part, summed over the ranks.
std::vector<at::Tensor> gram_matrices(const std::vector<Wide>& parts, comm::Group& group) {
  std::vector<Shape> shapes;
  for (const Wide& part : parts) shapes.push_back({part.x.size(0), part.x.size(1), part.x.size(1)});
  FlatTensors flat = flat_tensors(shapes, parts[0].x.options());
  for (size_t k = 0; k < parts.size(); ++k) at::bmm_out(flat.views[k], parts[k].x, parts[k].x.mT());
  if (flat.buffer.numel() > 0)
    group.all_reduce(flat.buffer, comm::ReduceOp::kSum, "Gram matrices of Muon's matrices")->wait();
  return flat.views;
}

// The set's AOL scaling and safety factor: as muon::normalize_for_iteration.
void apply_guards(std::vector<Wide>& parts, const muon::NewtonSchulzOptions& options,
                  comm::Group& group) {
  if (options.upstream_exact || options.coefficient_type == "custom") return;
  const muon::CoefficientSet& set = muon::coefficient_set(options.coefficient_type);
  if (set.needs_aol_scaling) {
    const std::vector<at::Tensor> grams = gram_matrices(parts, group);
    for (size_t k = 0; k < parts.size(); ++k)
      parts[k].x.mul_(grams[k].abs().sum(-1, /*keepdim=*/true).clamp_min_(1e-30).rsqrt_());
  }
  if (set.safety != 1.0)
    for (Wide& part : parts) part.x.div_(set.safety);
}

void iterate(std::vector<Wide>& parts, const std::vector<muon::Coefficients>& steps,
             comm::Group& group) {
  for (const muon::Coefficients& step : steps) {
    const std::vector<at::Tensor> grams = gram_matrices(parts, group);
    for (size_t k = 0; k < parts.size(); ++k) {
      at::Tensor& x = parts[k].x;
      if (step.c == 0) {
        x = at::baddbmm(x, grams[k], x, step.a, step.b);
      } else {
        const at::Tensor poly = at::baddbmm(grams[k], grams[k], grams[k], step.b, step.c);
        x = at::baddbmm(x, poly, x, step.a, 1.0);
      }
    }
  }
}

}  // namespace

std::vector<at::Tensor> orthogonalize_distributed(const std::vector<Share>& shares,
                                                  const muon::OrthogonalizeOptions& options,
                                                  comm::Group& group, bool allow_recut) {
  at::NoGradGuard no_grad;
  if (shares.empty()) return {};
  check(options.pre == muon::PreTransform::kNone && options.post == muon::PostTransform::kNone,
        "tp_mode distributed has no pre- and post-transforms: use duplicated or layer_sharded");
  const muon::NewtonSchulzOptions& newton_schulz = options.newton_schulz;
  const std::vector<muon::Coefficients> steps = muon::resolve_coefficients(newton_schulz);
  std::vector<Wide> parts;
  for (const Share& share : shares) parts.push_back(widen(share));
  std::vector<Wide*> to_recut;
  std::vector<int64_t> n_whole;
  for (Wide& part : parts) {
    if (!allow_recut || part.x.size(1) <= part.x.size(2) * group.size()) continue;
    to_recut.push_back(&part);
    n_whole.push_back(part.x.size(1));
  }
  if (!to_recut.empty()) recut(to_recut, group);
  normalize(parts, newton_schulz, group);
  apply_guards(parts, newton_schulz, group);
  if (newton_schulz.precision == muon::MatmulPrecision::kMedium)
    for (Wide& part : parts) part.x = part.x.to(at::kBFloat16);
  iterate(parts, steps, group);
  for (Wide& part : parts) part.x = part.x.to(shares[0].direction.scalar_type());
  if (!to_recut.empty()) undo_recut(to_recut, n_whole, group);
  std::vector<at::Tensor> out;
  for (size_t k = 0; k < parts.size(); ++k) {
    const at::Tensor x = parts[k].transposed ? parts[k].x.mT() : parts[k].x;
    out.push_back(shares[k].direction.dim() == 3 ? x : x.squeeze(0));
  }
  return out;
}

}  // namespace muoncore::parallel
