// TensorParallelMuon: one rank with whole matrices, and as many as the golden had, as threads.
#include <algorithm>

#include "muoncore/cli/parity_groups.h"
#include "muoncore/comm/threads.h"
#include "muoncore/parallel/tensor_parallel_muon.h"

namespace muoncore::cli {
namespace {

// One case with its parameter and the gradients of all steps, whole.
struct Case {
  ParamSpec spec;
  optim::MuonOptions options;
  parallel::TensorParallelOptions tp_options;
  at::Tensor param, gradients;
  std::vector<int64_t> steps_kept;
};

optim::MuonOptions options_of(const nlohmann::json& common, const nlohmann::json& hyper,
                              const UpstreamProfile& profile) {
  nlohmann::json all = common;
  all.update(hyper);
  all["weight_decay_method"] =
      hyper.at("use_decoupled_weight_decay").get<bool>() ? "decoupled" : "l2";
  return muon_options(all, profile);
}

Case case_of(const GoldenFolder& golden, const nlohmann::json& common, const nlohmann::json& c,
             const UpstreamProfile& profile) {
  const std::string id = c.at("id"), name = id.substr(id.rfind('/') + 1);
  Case out;
  out.param = golden.tensor("tp_muon.safetensors", "in/param/" + name);
  out.gradients = golden.tensor("tp_muon.safetensors", "in/grad/" + name);
  out.spec.name = name;
  out.spec.shape = out.param.sizes().vec();
  if (!c.at("qkv_split_shapes").is_null())
    out.spec.blocks.rows = c.at("qkv_split_shapes").get<std::vector<int64_t>>();
  if (!c.at("partition_dim").is_null()) out.spec.partition_dim = c.at("partition_dim").get<int>();
  out.options = options_of(common, c.at("hyper"), profile);
  out.tp_options.mode = parallel::parse_tp_mode(c.at("hyper").at("tp_mode").get<std::string>());
  out.tp_options.upstream = profile.tensor_parallel_as_upstream;
  out.steps_kept = common.at("steps_kept").get<std::vector<int64_t>>();
  return out;
}

// The rank's shard after each step that the golden kept.
std::vector<at::Tensor> one_rank(const Case& c, comm::Group& tp) {
  auto shard = [&](const at::Tensor& whole) {
    return parallel::shard_of(whole, c.spec, tp.size(), tp.rank());
  };
  at::Tensor param = shard(c.param);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{param},
                      std::make_unique<optim::MuonOptions>(c.options));
  parallel::TensorParallelMuon muon(tp, c.tp_options, groups, c.options);
  muon.set_spec(param, parallel::shard_spec(c.spec, tp.size()));
  std::vector<at::Tensor> out;
  for (int64_t k = 1; k <= c.gradients.size(0); ++k) {
    param.mutable_grad() = shard(c.gradients.select(0, k - 1));
    muon.step();
    if (std::find(c.steps_kept.begin(), c.steps_kept.end(), k) != c.steps_kept.end())
      out.push_back(param.clone());
  }
  return out;
}

std::vector<Distance> all_ranks(const Case& c, int64_t ranks, const at::Tensor& expected,
                                double atol, double rtol) {
  std::vector<std::vector<at::Tensor>> by_rank(static_cast<size_t>(ranks));
  comm::run_ranks(
      ranks, [&](comm::Group& tp) { by_rank[static_cast<size_t>(tp.rank())] = one_rank(c, tp); });
  std::vector<Distance> out;
  for (size_t step = 0; step < c.steps_kept.size(); ++step) {
    const at::Tensor golden = expected.select(0, static_cast<int64_t>(step));
    std::vector<at::Tensor> shards;
    for (const auto& own : by_rank) shards.push_back(own.at(step));
    if (c.spec.partition_dim < 0)  // every rank's replica
      for (const at::Tensor& replica : shards) out.push_back(distance(replica, golden, atol, rtol));
    else
      out.push_back(distance(parallel::unshard(shards, c.spec), golden, atol, rtol));
  }
  return out;
}

// "tp2/duplicated/..." -> 2
int64_t ranks_of(const std::string& output) {
  return std::stoll(output.substr(2, output.find('/') - 2));
}

}  // namespace

GroupReport replay_tensor_parallel(const GoldenFolder& golden, const UpstreamProfile& profile) {
  GroupReport report("tensor_parallel_muon");
  const auto& group = golden.group("tensor_parallel_muon");
  for (const auto& c : group.at("cases")) {
    const Case inputs = case_of(golden, group.at("common"), c, profile);
    for (const std::string output : c.at("outputs"))
      report.judge(output,
                   all_ranks(inputs, ranks_of(output), golden.tensor("tp_muon.safetensors", output),
                             c.at("atol"), c.at("rtol")));
  }
  return report;
}

}  // namespace muoncore::cli
