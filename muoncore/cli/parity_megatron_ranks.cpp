// Megatron's optimizer on several ranks: replicated, ZeRO-1, layer-wise, tensor parallel.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <mutex>

#include "muoncore/cli/parity_megatron.h"
#include "muoncore/comm/mesh.h"
#include "muoncore/comm/threads.h"
#include "muoncore/optim/grad_norm.h"
#include "muoncore/parallel/tensor_parallel_muon.h"
#include "muoncore/parallel/wrap.h"

namespace muoncore::cli {
namespace {

// Whole tensors of one case: read before threads start.
struct Recorded {
  std::vector<ParamSpec> specs;
  std::vector<at::Tensor> params;              // fp32
  std::vector<std::vector<at::Tensor>> grads;  // [data-parallel rank][parameter]: [steps, ...]
  std::vector<at::Tensor> outputs;             // [parameter]: [steps, ...]
};

Recorded read_case(const GoldenFolder& golden, const nlohmann::json& group,
                   const nlohmann::json& c) {
  Recorded out;
  const std::string id = c.at("id");
  out.grads.resize(c.at("dp").get<size_t>());
  for (const auto& row : group.at("param_specs")) {
    ParamSpec spec = megatron_spec(row, group.at("model"));
    if (c.at("tp") > 1 && !row.at("partition_dim").is_null())
      spec.partition_dim = row.at("partition_dim").get<int>();
    out.params.push_back(golden.tensor(kMegatronFile, "in/param/" + spec.name));
    for (size_t d = 0; d < out.grads.size(); ++d)
      out.grads[d].push_back(
          golden.tensor(kMegatronFile, fmt::format("in/grad/dp{}/{}", d, spec.name)));
    out.outputs.push_back(golden.tensor(kMegatronFile, fmt::format("out/{}/{}", id, spec.name)));
    out.specs.push_back(std::move(spec));
  }
  return out;
}

// Megatron's shards are contiguous slices.
at::Tensor shard(const at::Tensor& whole, const ParamSpec& spec, const comm::Group& tp) {
  if (spec.partition_dim < 0) return whole.contiguous();
  const int64_t size = whole.size(spec.partition_dim) / tp.size();
  return whole.narrow(spec.partition_dim, tp.rank() * size, size).contiguous();
}

parallel::DistributedDataParallelConfig ddp_config(const nlohmann::json& build) {
  const std::string mode = build.at("mode");
  parallel::DistributedDataParallelConfig config;
  config.use_distributed_optimizer = mode == "adam_dist" || mode.starts_with("lw_");
  config.use_layer_wise_distributed_optimizer = mode.starts_with("lw_");
  // without a layout upstream deals by ping-pong, which no weight depends on
  if (mode != "lw_legacy") config.param_layout = parallel::LayoutKind::kMegatron;
  if (build.contains("bucket")) config.bucket_size = build.at("bucket").get<int64_t>();
  return config;
}

optim::MuonFactory muon_of(comm::Group& tp, const optim::OptimizerConfig& config,
                           const UpstreamProfile& profile) {
  return [&tp, &config, &profile](const optim::MuonOptions& options) {
    return std::make_unique<parallel::TensorParallelMuon>(
        tp,
        parallel::TensorParallelOptions{.mode = parallel::parse_tp_mode(config.muon_tp_mode),
                                        .upstream = profile.tensor_parallel_as_upstream},
        std::vector<torch::optim::OptimizerParamGroup>{}, options);
  };
}

// Under the layer-wise layout: the matrices that each rank owns, as recorded.
Distance owners_distance(const parallel::WrappedModel& model, const Recorded& recorded,
                         const nlohmann::json& lists) {
  std::map<std::string, int64_t> expected;
  for (size_t rank = 0; rank < lists.size(); ++rank)
    for (const auto& name : lists[rank]) expected[name] = static_cast<int64_t>(rank);
  int64_t wrong = 0;
  for (const auto& plan : model.plans[0])
    for (const auto& place : plan.layout.placements) {
      if (place.owner < 0) continue;
      const auto found = expected.find(recorded.specs[plan.params[place.param]].name);
      wrong += found == expected.end() || found->second != place.owner ? 1 : 0;
    }
  return number_distance(static_cast<double>(wrong), 0, 0.5, 0);
}

class RankReplay {
 public:
  RankReplay(const Recorded& recorded, const nlohmann::json& c, const UpstreamProfile& profile,
             comm::GroupFactory& factory)
      : recorded_(recorded), c_(c), mesh_(factory, {.tp = c.at("tp")}) {
    const auto dtype = c.at("build").at("bf16").get<bool>() ? at::kBFloat16 : at::kFloat;
    for (size_t i = 0; i < recorded.specs.size(); ++i)
      chunk_.params.push_back(
          {.spec = recorded.specs[i],
           .tensor = shard(recorded.params[i], recorded.specs[i], mesh_.tp()).to(dtype).clone()});
    for (auto& param : chunk_.params) param.tensor.set_requires_grad(true);
    optim::OptimizerConfig config = megatron_config(c, profile);
    config.muon_tp_mode = c.at("hyper").at("muon_tp_mode");
    model_ = parallel::wrap_model_chunks_with_layerwise_aware_ddp(
        {chunk_}, config, ddp_config(c.at("build")), parallel::groups_of(mesh_),
        muon_of(mesh_.tp(), config, profile));
    apply_profile(*model_.optimizer, profile);
  }

  std::vector<Distance> run(int64_t steps) {
    std::vector<Distance> out;
    if (c_.at("build").at("mode") == "lw_layout" && !c_.at("dp_cp_params_list").is_null())
      out.push_back(owners_distance(model_, recorded_, c_.at("dp_cp_params_list")));
    for (int64_t k = 0; k < steps; ++k) step(k, out);
    return out;
  }

 private:
  void step(int64_t k, std::vector<Distance>& out) {
    optim::ChainedOptimizer& optimizer = *model_.optimizer;
    for (auto& g : optimizer.param_groups()) g.set_lr(c_.at("groups")[k][0].at("lr"));
    optimizer.zero_grad();
    const auto& grads = recorded_.grads[static_cast<size_t>(mesh_.dp_cp().rank())];
    for (size_t i = 0; i < chunk_.params.size(); ++i)
      model_.chunks[0]->add_gradient(i,
                                     shard(grads[i].select(0, k), recorded_.specs[i], mesh_.tp()));
    const optim::StepResult result = optimizer.step();
    out.push_back(number_distance(result.grad_norm, c_.at("grad_norm")[k], 0, 1e-6));
    for (size_t i = 0; i < chunk_.params.size(); ++i)
      out.push_back(
          distance(chunk_.params[i].tensor,
                   shard(recorded_.outputs[i].select(0, k), recorded_.specs[i], mesh_.tp()),
                   c_.at("atol"), c_.at("rtol")));
  }

  const Recorded& recorded_;
  const nlohmann::json& c_;
  comm::Mesh mesh_;
  parallel::ModelChunk chunk_;
  parallel::WrappedModel model_;
};

// Norms of order p of both ranks' gradients together.
double norm_of_ranks(const std::vector<at::Tensor>& grads, double p, comm::Group& world) {
  if (p == 2.0) {
    optim::ExactSum sum;
    for (const auto& grad : grads) optim::add_squares(sum, grad);
    std::vector<int64_t> record = sum.record();
    const at::Tensor digits =
        at::from_blob(record.data(), {optim::ExactSum::kRecordSize}, at::kLong);
    world.all_reduce(digits, comm::ReduceOp::kSum, "norm")->wait();
    return optim::ExactSum::from_record(record).root();
  }
  const double own = optim::grad_norm(grads, p).norm;
  const bool largest = std::isinf(p);
  const at::Tensor term = at::full({1}, largest ? own : std::pow(own, p), at::kDouble);
  world.all_reduce(term, largest ? comm::ReduceOp::kMax : comm::ReduceOp::kSum, "norm")->wait();
  return largest ? term.item<double>() : std::pow(term.item<double>(), 1.0 / p);
}

}  // namespace

std::vector<Distance> replay_ranks(const GoldenFolder& golden, const nlohmann::json& group,
                                   const nlohmann::json& c, const UpstreamProfile& profile) {
  const Recorded recorded = read_case(golden, group, c);
  const int64_t steps = group.at("steps");
  std::vector<Distance> all;
  std::mutex mutex;
  comm::run_ranks(c.at("world"), [&](comm::Group&, comm::GroupFactory& factory) {
    const std::vector<Distance> own = RankReplay(recorded, c, profile, factory).run(steps);
    const std::lock_guard lock(mutex);
    all.insert(all.end(), own.begin(), own.end());
  });
  return all;
}

void replay_clipping_on_two_ranks(const GoldenFolder& golden, const nlohmann::json& rows,
                                  GroupReport& report) {
  std::vector<std::vector<at::Tensor>> grads(2);
  for (size_t r = 0; r < 2; ++r)
    for (int i = 0; i < 4; ++i)
      grads[r].push_back(golden.tensor(kMegatronFile, fmt::format("in/clip/r{}/g{}", r, i)));
  for (const auto& row : rows) {
    const bool empty = row.contains("empty_list_norm"), limited = row.contains("max_norm");
    const double p = row.contains("norm_type") ? std::stod(row["norm_type"].get<std::string>()) : 2;
    const std::string limit = limited ? row.at("max_norm").dump() : "";
    std::vector<Distance> distances;
    std::mutex mutex;
    comm::run_ranks(2, [&](comm::Group& world) {
      const auto& own = grads[static_cast<size_t>(world.rank())];
      const double norm = norm_of_ranks(empty ? std::vector<at::Tensor>{} : own, p, world);
      const std::lock_guard lock(mutex);
      distances.push_back(
          number_distance(norm, row.at(empty ? "empty_list_norm" : "total_norm"), 0, 1e-6));
      if (!limited) return;
      const double factor = optim::clip_coefficient(norm, row.at("max_norm"));
      distances.push_back(
          number_distance(factor, std::min(1.0, row.at("clip_coeff").get<double>()), 0, 1e-6));
      for (size_t i = 0; i < own.size(); ++i)
        distances.push_back(distance(
            own[i] * factor,
            golden.tensor(kMegatronFile,
                          fmt::format("out/clip/w2/max{}/g{}/r{}", limit, i, world.rank())),
            1e-9, 2e-6));
    });
    report.judge(fmt::format("clip/w2/{}", empty     ? "empty"
                                           : limited ? "max" + limit
                                                     : fmt::format("norm{}", p)),
                 distances);
  }
}

}  // namespace muoncore::cli
