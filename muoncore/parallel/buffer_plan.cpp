#include "muoncore/parallel/buffer_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"

namespace muoncore::parallel {

const char* to_string(Sharding sharding) {
  switch (sharding) {
    case Sharding::kReplicated:
      return "replicated";
    case Sharding::kDistributedOptimizer:
      return "DistributedOptimizer";
    case Sharding::kLayerWiseDistributedOptimizer:
      return "LayerWiseDistributedOptimizer";
  }
  return "?";
}

ResolvedSharding resolve_sharding(const optim::OptimizerConfig& optimizer,
                                  const DistributedDataParallelConfig& config) {
  const bool layer_wise = config.use_layer_wise_distributed_optimizer,
             distributed = config.use_distributed_optimizer;
  ResolvedSharding out;
  if (optim::uses_muon(optimizer)) {
    if (layer_wise || distributed) out.sharding = Sharding::kLayerWiseDistributedOptimizer;
    if (!layer_wise && distributed)
      out.note =
          "optimizer: muon with use_distributed_optimizer: a matrix that is cut over ranks cannot "
          "be orthogonalized, so the layer-wise distributed optimizer is used";
    if (layer_wise && !distributed)
      out.note =
          "use_layer_wise_distributed_optimizer: what AdamW updates is sharded too "
          "(use_distributed_optimizer: false has no effect)";
  } else {
    check(!layer_wise,
          "use_layer_wise_distributed_optimizer is for optimizer: muon, not for {}: use "
          "use_distributed_optimizer",
          optimizer.optimizer);
    if (distributed) out.sharding = Sharding::kDistributedOptimizer;
  }
  check(
      !config.overlap_param_gather || out.sharding != Sharding::kReplicated,
      "overlap_param_gather needs use_distributed_optimizer: without it no parameter is gathered");
  return out;
}

namespace {

// What must not share a buffer.
struct BufferKind {
  bool expert;
  at::ScalarType dtype;
  auto operator<=>(const BufferKind&) const = default;
};

class Planner {
 public:
  Planner(const std::vector<optim::Route>& routes, Sharding sharding,
          const DistributedDataParallelConfig& config, const ParallelGroups& groups)
      : routes_(routes), sharding_(sharding), config_(config), groups_(groups) {}

  std::vector<BufferPlan> plan(const ModelChunk& chunk, size_t number) {
    std::map<BufferKind, std::vector<size_t>> kinds;
    for (size_t i = 0; i < chunk.params.size(); ++i)
      kinds[{chunk.params[i].expert, chunk.params[i].tensor.scalar_type()}].push_back(i);
    std::vector<BufferPlan> plans;
    for (const auto& [kind, members] : kinds) add(chunk, number, kind, members, plans);
    next_ += chunk.params.size();
    return plans;
  }

 private:
  LayoutOptions options_for(bool expert, bool sharded) {
    const int64_t dp = size_of(expert ? groups_.expert_dp : groups_.dp);
    LayoutOptions options{
        .dp = sharded ? dp : 1,
        .bucket_size = config_.bucket_size,
        .pad_buckets_for_high_nccl_busbw = config_.pad_buckets_for_high_nccl_busbw};
    if (!options.bucket_size && (config_.overlap_grad_reduce || config_.overlap_param_gather))
      options.bucket_size = default_bucket_size(dp);
    options.before = before_[expert];
    return options;
  }

  void add(const ModelChunk& chunk, size_t number, const BufferKind& kind,
           const std::vector<size_t>& members, std::vector<BufferPlan>& plans) {
    const bool sharded = sharding_ != Sharding::kReplicated;
    std::vector<LayoutParam> params;
    for (size_t i : members) {
      const ChunkParam& p = chunk.params[i];
      params.push_back({.name = p.spec.name,
                        .shape = p.tensor.sizes().vec(),
                        .whole = sharding_ == Sharding::kLayerWiseDistributedOptimizer &&
                                 routes_[next_ + i].optimizer == "muon",
                        .shared_embedding = p.shared_embedding});
    }
    const LayoutOptions options = options_for(kind.expert, sharded);
    const ParamLayout layout = compute_layout(config_.param_layout, params, options);
    check_layout(layout, params, options.dp);
    remember(kind.expert, owned_loads(layout, params, options.dp));
    for (const auto& [buffer, word] : {std::pair{&layout.whole, "whole"}, {&layout.cut, "cut"}})
      if (!buffer->placements.empty())
        plans.push_back(
            make_plan(*buffer, members, kind, sharded,
                      fmt::format("chunk {}, {}{}, {}", number, kind.expert ? "expert, " : "",
                                  c10::toString(kind.dtype), word)));
  }

  // Layouts place parameters of one call in two buffers; a buffer's own list holds its own alone.
  BufferPlan make_plan(BufferLayout layout, const std::vector<size_t>& members,
                       const BufferKind& kind, bool sharded, std::string name) const {
    BufferPlan plan{.name = std::move(name),
                    .params = {},
                    .layout = std::move(layout),
                    .expert = kind.expert,
                    .sharded = sharded,
                    .grad_dtype = kind.dtype};
    if (config_.grad_reduce_in_fp32 && kind.dtype == at::kBFloat16) plan.grad_dtype = at::kFloat;
    for (auto& place : plan.layout.placements) {
      plan.params.push_back(members[static_cast<size_t>(place.param)]);
      place.param = static_cast<int64_t>(plan.params.size()) - 1;
    }
    return plan;
  }

  // Ranks that own much of earlier chunks get less of later ones.
  void remember(bool expert, const std::vector<OwnedLoad>& loads) {
    auto& before = before_[expert];
    before.resize(loads.size());
    for (size_t r = 0; r < loads.size(); ++r) {
      before[r].cost += loads[r].cost;
      before[r].numel += loads[r].numel;
    }
  }

  const std::vector<optim::Route>& routes_;
  Sharding sharding_;
  const DistributedDataParallelConfig& config_;
  const ParallelGroups& groups_;
  size_t next_ = 0;  // route of the chunk's first parameter
  std::map<bool, std::vector<OwnedLoad>> before_;
};

}  // namespace

std::vector<std::vector<BufferPlan>> plan_buffers(const std::vector<ModelChunk>& chunks,
                                                  const std::vector<optim::Route>& routes,
                                                  Sharding sharding,
                                                  const DistributedDataParallelConfig& config,
                                                  const ParallelGroups& groups) {
  Planner planner(routes, sharding, config, groups);
  std::vector<std::vector<BufferPlan>> plans;
  for (size_t number = 0; number < chunks.size(); ++number)
    plans.push_back(planner.plan(chunks[number], number));
  return plans;
}

uint64_t hash_plan(const std::vector<ModelChunk>& chunks,
                   const std::vector<std::vector<BufferPlan>>& plans, bool expert) {
  std::string text;
  for (size_t c = 0; c < chunks.size(); ++c)
    for (const BufferPlan& plan : plans[c]) {
      if (plan.expert != expert) continue;
      text += fmt::format("{} {} {}\n", plan.name, plan.sharded, c10::toString(plan.grad_dtype));
      for (const Placement& p : plan.layout.placements) {
        const ChunkParam& param = chunks[c].params[plan.params[static_cast<size_t>(p.param)]];
        text += fmt::format("{} [{}] {} {} {} {} {}\n", param.spec.name,
                            fmt::join(param.tensor.sizes(), ","), p.start, p.end, p.bucket, p.owner,
                            param.shared_embedding);
      }
      for (const Bucket& b : plan.layout.buckets)
        text += fmt::format("{}\n", fmt::join(b.shards, ","));
    }
  return hash_name(text);
}

}  // namespace muoncore::parallel
