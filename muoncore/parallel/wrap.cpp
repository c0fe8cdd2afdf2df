#include "muoncore/parallel/wrap.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"
#include "muoncore/parallel/model_exchange.h"
#include "muoncore/parallel/tensor_parallel_muon.h"

namespace muoncore::parallel {
namespace {

comm::Group* tensor_group(const ChunkParam& param, const ParallelGroups& groups) {
  return param.expert ? groups.expert_tp : groups.tp;
}

// The shape that lies on this rank.
std::vector<int64_t> local_shape(const ChunkParam& param, const ParallelGroups& groups) {
  const ParamSpec& spec = param.spec;
  const int64_t ranks = size_of(tensor_group(param, groups));
  std::vector<int64_t> shape = spec.shape;
  if (spec.partition_dim < 0 || ranks == 1) return shape;
  const size_t dim = static_cast<size_t>(spec.partition_dim);
  check(dim < shape.size() && shape[dim] % ranks == 0,
        "parameter '{}' of shape [{}] cannot be cut along dimension {} over {} tensor-parallel "
        "ranks",
        spec.name, fmt::join(shape, ", "), dim, ranks);
  shape[dim] /= ranks;
  return shape;
}

void check_param(const ChunkParam& param, const ParallelGroups& groups) {
  const std::string& name = param.spec.name;
  check(param.tensor.defined() && param.tensor.requires_grad(),
        "parameter '{}' requires no gradient: leave frozen parameters out", name);
  check(!param.tensor.grad().defined(),
        "parameter '{}' has a gradient already: wrap a model once, before its first backward pass",
        name);
  check(!param.expert || groups.expert_dp != nullptr || size_of(groups.dp) == 1,
        "parameter '{}' belongs to an expert: give the group expert_dp of its replicas", name);
  check(!param.expert || param.spec.partition_dim < 0 || size_of(groups.expert_tp) == 1,
        "parameter '{}' of an expert is cut over {} tensor-parallel ranks: experts are supported "
        "whole (expert_tensor_parallel_size: 1)",
        name, size_of(groups.expert_tp));
  check(!param.shared_embedding || size_of(groups.pp) == 1 || groups.embedding != nullptr,
        "parameter '{}' is tied to another pipeline stage: give the group embedding of the stages "
        "that hold it",
        name);
}

// All parameters of all chunks, with the shapes that lie here.
std::vector<optim::NamedParam> checked_params(const std::vector<ModelChunk>& chunks,
                                              const optim::OptimizerConfig& optimizer,
                                              const ParallelGroups& groups) {
  std::vector<optim::NamedParam> params;
  for (const auto& chunk : chunks)
    for (const auto& param : chunk.params) {
      check_param(param, groups);
      params.push_back({param.spec, param.tensor});
      params.back().spec.shape = local_shape(param, groups);
    }
  check(!params.empty(), "an optimizer needs at least one parameter");
  optim::check_params(params, optim::uses_muon(optimizer));
  return params;
}

// Names the first rank whose number differs from that of rank 0. Ranks that agree exchange no more
// than the largest and the smallest number.
void check_same(comm::Group* group, uint64_t mine, const char* what, const char* advice) {
  if (group == nullptr) return;
  const int64_t number = static_cast<int64_t>(mine);
  const at::Tensor ends = at::tensor({number, ~number});
  group->all_reduce(ends, comm::ReduceOp::kMax, what)->wait();
  const int64_t* end = ends.const_data_ptr<int64_t>();
  if (end[0] == ~end[1]) return;
  at::Tensor all = at::zeros({group->size()}, at::kLong);
  all[group->rank()] = number;
  group->all_gather(all, std::vector<int64_t>(group->size(), 1), what)->wait();
  const int64_t* numbers = all.const_data_ptr<int64_t>();
  for (int64_t r = 1; r < group->size(); ++r)
    check(numbers[r] == numbers[0], "rank {} of group '{}' has other {} than rank 0: {}",
          group->global_ranks()[r], group->name(), what, advice);
}

using Parts = optim::ChainedOptimizer::Parts;

// What a rank does not count, because another rank has the same elements or matrix.
void set_counts(optim::OwnedPiece& piece, const ChunkParam& param, bool sharded,
                const ParallelGroups& groups) {
  const bool first_replica = sharded || rank_in(param.expert ? groups.expert_dp : groups.dp) == 0;
  const bool first_tie = !param.shared_embedding || rank_in(groups.embedding) == 0;
  const bool first_share = rank_in(tensor_group(param, groups)) == 0;
  piece.counts_matrices = first_replica && first_tie && first_share;
  piece.counted = first_replica && first_tie && (first_share || param.spec.partition_dim >= 0);
}

// Pieces stand in the parameters' order, so that groups and batches do not depend on the layout;
// phases in the order in which the next forward pass needs their buckets.
void add_pieces(Parts& parts, const WrappedModel& model, const std::vector<const ChunkParam*>& all,
                const ParallelGroups& groups) {
  std::vector<ParamAndGradBuffer::Piece> pieces;
  std::vector<size_t> phase;
  std::vector<std::pair<size_t, size_t>> order;  // by parameter
  for (const auto& chunk : model.chunks)
    for (const auto& buffer : chunk->buffers())
      for (auto& piece : buffer->owned_pieces()) {
        order.emplace_back(piece.piece.param, pieces.size());
        phase.push_back(model.schedule->forward_index(*buffer, piece.bucket));
        pieces.push_back(std::move(piece));
      }
  std::sort(order.begin(), order.end());
  parts.phases.resize(model.schedule->buckets());
  for (const auto& [param, k] : order) {
    optim::OwnedPiece& piece = pieces[k].piece;
    set_counts(piece, *all[param], model.sharding != Sharding::kReplicated, groups);
    parts.phases[phase[k]].push_back(parts.pieces.size());
    parts.pieces.push_back(std::move(piece));
  }
}

optim::MuonFactory muon_factory(const optim::OptimizerConfig& config,
                                const ParallelGroups& groups) {
  if (size_of(groups.tp) == 1) return optim::local_muon;
  return [&config, &groups](const optim::MuonOptions& options) -> std::unique_ptr<optim::Muon> {
    return std::make_unique<TensorParallelMuon>(
        *groups.tp, TensorParallelOptions{.mode = parse_tp_mode(config.muon_tp_mode)},
        std::vector<torch::optim::OptimizerParamGroup>{}, options);
  };
}

void make_buffers(WrappedModel& model, const std::vector<ModelChunk>& chunks,
                  const DistributedDataParallelConfig& config, const ParallelGroups& groups,
                  size_t params) {
  const double mean = 1.0 / static_cast<double>(size_of(groups.dp));
  model.schedule = std::make_unique<BucketSchedule>(
      BucketSchedule::Options{.overlap_grad_reduce = config.overlap_grad_reduce,
                              .grad_factor = config.average_gradients ? mean : 1.0,
                              .embedding = groups.embedding,
                              .params = params});
  size_t first = 0;
  for (size_t c = 0; c < chunks.size(); ++c) {
    model.chunks.push_back(std::make_unique<DistributedDataParallel>(
        chunks[c], model.plans[c], groups, *model.schedule, first));
    first += chunks[c].params.size();
  }
  for (auto chunk = model.chunks.rbegin(); chunk != model.chunks.rend(); ++chunk)
    (*chunk)->add_to_schedule();
  for (auto& chunk : model.chunks) chunk->broadcast_params();
}

}  // namespace

WrappedModel wrap_model_chunks_with_layerwise_aware_ddp(const std::vector<ModelChunk>& chunks,
                                                        const optim::OptimizerConfig& optimizer,
                                                        const DistributedDataParallelConfig& config,
                                                        const ParallelGroups& groups,
                                                        const optim::MuonFactory& make_muon) {
  optim::validate(optimizer);
  const ResolvedSharding resolved = resolve_sharding(optimizer, config);
  WrappedModel model;
  model.sharding = resolved.sharding;
  if (!resolved.note.empty()) model.notes.push_back(resolved.note);

  Parts parts;
  parts.params = checked_params(chunks, optimizer, groups);
  std::vector<const ChunkParam*> all;
  std::vector<ParamSpec> specs;
  std::vector<bool> expert;
  for (const auto& chunk : chunks)
    for (const auto& param : chunk.params) {
      all.push_back(&param);
      specs.push_back(param.spec);
      expert.push_back(param.expert);
    }
  optim::RoutedSpecs routed = optim::route_specs(std::move(specs), optimizer);
  if (size_of(groups.pp) == 1) optim::check_has_matrices(routed.routes, optimizer);
  for (size_t i = 0; i < all.size(); ++i) {
    check(
        !all[i]->shared_embedding || routed.routes[i].optimizer != "muon",
        "parameter '{}' is tied to another pipeline stage and goes to muon ({}): route it to adam",
        routed.routes[i].name, routed.routes[i].why);
    const int64_t shares = size_of(tensor_group(*all[i], groups));
    parts.params[i].spec = routed.routes[i].optimizer == "muon" && shares > 1
                               ? shard_spec(routed.specs[i], shares)
                               : routed.specs[i];
  }
  parts.routes = std::move(routed.routes);

  model.plans = plan_buffers(chunks, parts.routes, model.sharding, config, groups);
  model.plan_hash = hash_plan(chunks, model.plans, false);
  const char* advice = "give all ranks the same model, optimizer settings and bucket size";
  check_same(groups.dp, model.plan_hash, "parameters or layout", advice);
  check_same(groups.expert_dp, hash_plan(chunks, model.plans, true), "experts or layout", advice);

  make_buffers(model, chunks, config, groups, all.size());
  add_pieces(parts, model, all, groups);
  parts.exchange = std::make_shared<ModelExchange>(*model.schedule, groups, std::move(expert),
                                                   config.overlap_param_gather);
  model.optimizer = optim::build_chain(std::move(parts), optimizer,
                                       make_muon ? make_muon : muon_factory(optimizer, groups));
  return model;
}

ParallelGroups groups_of(const comm::Mesh& mesh) {
  return {.world = &mesh.world(),
          .dp = &mesh.dp_cp(),
          .expert_dp = &mesh.expert_dp(),
          .tp = &mesh.tp(),
          .expert_tp = &mesh.expert_tp(),
          .pp = &mesh.pp()};
}

void check_replicas(const std::vector<ModelChunk>& chunks, const ParallelGroups& groups) {
  for (bool expert : {false, true}) {
    std::string bytes;
    for (const auto& chunk : chunks)
      for (const auto& param : chunk.params)
        if (param.expert == expert) {
          const at::Tensor data = param.tensor.detach().to(at::kCPU).contiguous();
          const uint64_t hash = hash_name({static_cast<const char*>(data.const_data_ptr()),
                                           static_cast<size_t>(data.nbytes())});
          bytes += fmt::format("{} ", hash);
        }
    check_same(expert ? groups.expert_dp : groups.dp, hash_name(bytes), "values of parameters",
               "replicas have come apart");
  }
}

}  // namespace muoncore::parallel
