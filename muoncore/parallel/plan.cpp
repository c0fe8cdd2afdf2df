#include "muoncore/parallel/plan.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"
#include "muoncore/parallel/plan_stage.h"

namespace muoncore::parallel {
namespace {

void check_positive(const char* name, int64_t value) {
  check(value >= 1, "{} {} must be at least 1", name, value);
}

bool is_vocabulary(const ParamSpec& spec) {
  return spec.role == ParamRole::kEmbedding || spec.role == ParamRole::kOutput;
}

// The layouts of one group of ranks that share parameters: the dense ones of a stage, or one share
// of its experts.
struct GroupLayouts {
  ParamLayout adamw, muon;
};

GroupLayouts lay_group(const std::vector<LayoutParam>& params, const LayoutOptions& options,
                       LayoutKind kind) {
  std::vector<LayoutParam> all_cut = params;
  for (LayoutParam& param : all_cut) param.whole = false;
  LayoutOptions adamw = options;
  adamw.before.clear();
  return {compute_layout(kind, all_cut, adamw), compute_layout(kind, params, options)};
}

// What the ranks of one group carry.
struct GroupLoads {
  std::vector<RankBytes> adamw, muon;
  std::vector<int64_t> adamw_sent, muon_sent;
  std::vector<NsCosts> costs;
  std::vector<OwnedLoad> owned;  // Muon arm
};

GroupLoads loads_of(const GroupLayouts& group, const std::vector<NsCosts>& costs, int64_t dp,
                    const ElementSizes& sizes) {
  GroupLoads loads;
  for (int64_t rank = 0; rank < dp; ++rank) {
    loads.adamw.push_back(rank_bytes(group.adamw, rank, sizes));
    loads.muon.push_back(rank_bytes(group.muon, rank, sizes));
    loads.adamw_sent.push_back(bytes_sent(group.adamw, rank, sizes));
    loads.muon_sent.push_back(bytes_sent(group.muon, rank, sizes));
  }
  loads.costs.resize(dp);
  for (const Placement& p : group.muon.whole.placements) {
    NsCosts& load = loads.costs[p.owner];
    load.stored += costs[p.param].stored;
    load.actual += costs[p.param].actual;
    load.upstream += costs[p.param].upstream;
  }
  return loads;
}

// A load that some rank must carry whoever owns what: of the j * dp + 1 largest, one rank has j
// + 1.
int64_t least_largest(std::vector<int64_t> costs, int64_t dp) {
  std::sort(costs.rbegin(), costs.rend());
  int64_t least = 0;
  const auto count = static_cast<int64_t>(costs.size());
  for (int64_t last = 0; last < count; last += dp) {
    int64_t load = 0;  // the last / dp + 1 smallest of the first last + 1
    for (int64_t i = last; i >= last - last / dp; --i) load += costs[i];
    least = std::max(least, load);
  }
  return least;
}

struct Padding {
  int64_t stored = 0, parameters = 0;
  void add(const BufferLayout& buffer) {
    stored += buffer.numel();
    for (const Placement& p : buffer.placements) parameters += p.end - p.start;
  }
  double fraction() const {
    return parameters ? static_cast<double>(stored - parameters) / static_cast<double>(parameters)
                      : 0.0;
  }
};

constexpr int64_t NsCosts::*kMeasures[] = {&NsCosts::stored, &NsCosts::actual, &NsCosts::upstream};

class Planner {
 public:
  Planner(const PlanModel& model, const PlanOptions& options) : model_(model), options_(options) {}

  Plan run() {
    route();
    for (int64_t stage = 0; stage < options_.sizes.pp; ++stage) add_stage(stage);
    finish();
    return std::move(plan_);
  }

 private:
  void route() {
    std::vector<ParamSpec> specs;
    for (const PlanParam& param : model_.params) specs.push_back(param.spec);
    plan_.params = model_.numel();
    for (const optim::Route& route : optim::route_all(specs, model_.routing)) {
      const ParamSpec& spec = specs[muon_.size()];
      muon_.push_back(route.optimizer == "muon");
      if (!muon_.back()) continue;
      ++plan_.muon_matrices;
      plan_.muon_params +=
          std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
    }
  }

  void add_stage(int64_t stage) {
    const ParallelSizes& sizes = options_.sizes;
    LayoutOptions options{sizes.dp};
    if (stage == 0) options.bucket_size = options_.bucket_size;
    const StageParams params = stage_params(model_, muon_, options_, stage);
    const GroupLoads dense = lay(params.dense, params.dense_costs, options);

    // Experts come second and know what their ranks own already: there are many, so they even out
    // what a few large dense matrices leave uneven.
    const int64_t shares = sizes.etp * sizes.ep;
    std::vector<GroupLoads> experts;
    options.dp = sizes.expert_dp();
    for (int64_t share = 0; share < shares; ++share) {
      options.before.clear();
      for (int64_t e = 0; e < options.dp; ++e)
        options.before.push_back(dense.owned[(e * shares + share) / sizes.tp]);
      experts.push_back(lay(params.expert, params.expert_costs, options));
    }
    add_ranks(dense, experts);
  }

  GroupLoads lay(const std::vector<LayoutParam>& params, const std::vector<NsCosts>& costs,
                 const LayoutOptions& options) {
    const GroupLayouts group = lay_group(params, options, options_.layout);
    whole_.add(group.muon.whole);
    cut_.add(group.muon.cut);
    plan_.layout_hash =
        hash_name(fmt::format("{} {}", plan_.layout_hash, hash_layout(group.muon, params)));
    for (int64_t NsCosts::*measure : kMeasures) {
      std::vector<int64_t> values;
      for (const NsCosts& cost : costs) values.push_back(cost.*measure);
      least_.*measure = std::max(least_.*measure, least_largest(std::move(values), options.dp));
    }
    GroupLoads loads = loads_of(group, costs, options.dp, options_.bytes);
    loads.owned = owned_loads(group.muon, params, options.dp);
    return loads;
  }

  // Megatron's order of ranks: tp fastest, then dp; for experts etp, then ep, then expert dp.
  void add_ranks(const GroupLoads& dense, const std::vector<GroupLoads>& experts) {
    const ParallelSizes& sizes = options_.sizes;
    const int64_t shares = sizes.etp * sizes.ep;
    for (int64_t rank = 0; rank < sizes.dp * sizes.tp; ++rank) {
      const int64_t d = rank / sizes.tp, e = rank / shares;
      const GroupLoads& expert = experts[rank % shares];
      auto add = [&](ArmPlan& arm, RankBytes bytes, const RankBytes& more, int64_t sent) {
        arm.bytes.push_back(bytes += more);
        arm.sent.push_back(sent);
      };
      add(plan_.adamw, dense.adamw[d], expert.adamw[e], dense.adamw_sent[d] + expert.adamw_sent[e]);
      add(plan_.muon, dense.muon[d], expert.muon[e], dense.muon_sent[d] + expert.muon_sent[e]);
      costs_.push_back({dense.costs[d].stored + expert.costs[e].stored,
                        dense.costs[d].actual + expert.costs[e].actual,
                        dense.costs[d].upstream + expert.costs[e].upstream});
    }
  }

  Imbalance imbalance(int64_t NsCosts::*measure) const {
    double sum = 0, most = 0;
    for (const NsCosts& cost : costs_) {
      sum += static_cast<double>(cost.*measure);
      most = std::max(most, static_cast<double>(cost.*measure));
    }
    if (sum == 0) return {};
    const double mean = sum / static_cast<double>(costs_.size());
    return {most / mean, std::max(static_cast<double>(least_.*measure), mean) / mean};
  }

  void finish() {
    plan_.ns = imbalance(&NsCosts::stored);
    plan_.ns_actual = imbalance(&NsCosts::actual);
    plan_.ns_upstream = imbalance(&NsCosts::upstream);
    for (const NsCosts& cost : costs_) plan_.ranks_without_matrices += cost.stored == 0;
    plan_.padding_fraction = whole_.fraction();
    plan_.padding_fraction_cut = cut_.fraction();
    double gap = 0;
    for (size_t rank = 0; rank < costs_.size(); ++rank)
      gap += static_cast<double>(plan_.adamw.bytes[rank].total() - plan_.muon.bytes[rank].total());
    constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
    plan_.adamw_minus_muon_gib = gap / static_cast<double>(costs_.size()) / kGib;
  }

  const PlanModel& model_;
  const PlanOptions& options_;
  Plan plan_;
  std::vector<bool> muon_;
  std::vector<NsCosts> costs_;  // per rank of the world
  NsCosts least_;               // that the busiest rank must carry
  Padding whole_, cut_;
};

}  // namespace

void check_sizes(const PlanModel& model, const ParallelSizes& s) {
  check_positive("dp", s.dp);
  check_positive("tp", s.tp);
  check_positive("ep", s.ep);
  check_positive("pp", s.pp);
  check_positive("etp", s.etp);
  check(s.dp <= kMaxWorld && s.tp <= kMaxWorld && s.pp <= kMaxWorld && s.world() <= kMaxWorld,
        "dp {} * tp {} * pp {} is more than the {} ranks that the planner takes", s.dp, s.tp, s.pp,
        kMaxWorld);
  check(model.experts > 0 || (s.ep == 1 && s.etp == 1),
        "{} has no experts: ep and etp must be 1, not {} and {}", model.name, s.ep, s.etp);
  check(model.layers % s.pp == 0, "pp {} does not divide the {} layers of {}", s.pp, model.layers,
        model.name);
  check(model.heads % s.tp == 0, "tp {} does not divide the {} attention heads of {}", s.tp,
        model.heads, model.name);
  check(model.kv_heads % s.tp == 0, "tp {} does not divide the {} key and value heads of {}", s.tp,
        model.kv_heads, model.name);
  if (model.experts > 0) {
    check(model.experts % s.ep == 0, "ep {} does not divide the {} experts of {}", s.ep,
          model.experts, model.name);
    check(s.world() % (s.etp * s.ep * s.pp) == 0,
          "etp {} * ep {} * pp {} does not divide the {} ranks (dp * tp * pp)", s.etp, s.ep, s.pp,
          s.world());
  }
  for (const PlanParam& p : model.params) {
    if (p.spec.partition_dim < 0 || is_vocabulary(p.spec)) continue;
    const int64_t parts = p.expert >= 0 ? s.etp : s.tp, size = p.spec.shape[p.spec.partition_dim];
    check(size % parts == 0, "{} {} does not divide the {} {} of {}", p.expert >= 0 ? "etp" : "tp",
          parts, size, p.spec.partition_dim == 0 ? "rows" : "columns", p.spec.name);
  }
}

Plan make_plan(const PlanModel& model, const PlanOptions& options) {
  check_sizes(model, options.sizes);
  check(!options.bucket_size || *options.bucket_size >= 1, "bucket_size {} must be at least 1",
        options.bucket_size.value_or(1));
  return Planner(model, options).run();
}

}  // namespace muoncore::parallel
