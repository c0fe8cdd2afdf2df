#include "muoncore/parallel/plan_stage.h"

#include <algorithm>
#include <numeric>

namespace muoncore::parallel {
namespace {

int64_t stage_of(const PlanModel& model, const PlanParam& param, int64_t pp) {
  if (param.layer == kBeforeLayers) return 0;
  if (param.layer == kAfterLayers) return pp - 1;
  return param.layer / (model.layers / pp);
}

bool is_tied(const PlanModel& model, const PlanParam& param) {
  return model.tied_embeddings && param.spec.role == ParamRole::kEmbedding;
}

LayoutParam local_param(const PlanModel& model, const PlanParam& param, const PlanOptions& options,
                        bool muon, int64_t cost) {
  LayoutParam local{param.spec.name, param.spec.shape, muon};
  if (param.spec.partition_dim >= 0) {
    const int64_t parts = param.expert >= 0 ? options.sizes.etp : options.sizes.tp;
    int64_t& cut = local.shape[param.spec.partition_dim];
    cut = (cut + parts - 1) / parts;  // check_sizes: uneven for vocabularies only
  }
  local.shared_embedding = is_tied(model, param) && options.sizes.pp > 1;
  local.cost = cost;
  return local;
}

}  // namespace

NsCosts ns_costs(const ParamSpec& spec, bool split_blocks) {
  const std::vector<int64_t>& shape = spec.shape;
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  const int64_t slices =
      std::accumulate(shape.begin(), shape.end() - 2, int64_t{1}, std::multiplies<>());
  const int64_t n = std::min(rows, columns), m = std::max(rows, columns);
  NsCosts costs{ns_cost(shape), 0, slices * m * n * n};
  if (!split_blocks || spec.blocks.rows.empty()) {
    costs.actual = costs.stored;
    return costs;
  }
  const int64_t groups =
      rows / std::accumulate(spec.blocks.rows.begin(), spec.blocks.rows.end(), int64_t{0});
  for (int64_t block : spec.blocks.rows)
    costs.actual += slices * (spec.blocks.per_group ? groups * ns_cost({block, columns})
                                                    : ns_cost({groups * block, columns}));
  return costs;
}

StageParams stage_params(const PlanModel& model, const std::vector<bool>& muon,
                         const PlanOptions& options, int64_t stage) {
  const ParallelSizes& sizes = options.sizes;
  StageParams out;
  const PlanParam* tied_copy = nullptr;
  auto add = [&](const PlanParam& param, bool goes_to_muon) {
    const NsCosts costs = goes_to_muon ? ns_costs(param.spec, options.split_blocks) : NsCosts{};
    const bool expert = param.expert >= 0;
    (expert ? out.expert : out.dense)
        .push_back(local_param(model, param, options, goes_to_muon, costs.stored));
    (expert ? out.expert_costs : out.dense_costs).push_back(costs);
  };
  for (size_t i = 0; i < model.params.size(); ++i) {
    const PlanParam& param = model.params[i];
    const int64_t its = stage_of(model, param, sizes.pp);
    if (is_tied(model, param) && its != sizes.pp - 1) tied_copy = &param;
    if (its != stage) continue;
    if (param.expert >= 0 && param.expert >= model.experts / sizes.ep) continue;
    add(param, muon[i]);
  }
  if (tied_copy && stage == sizes.pp - 1) add(*tied_copy, false);
  return out;
}

}  // namespace muoncore::parallel
