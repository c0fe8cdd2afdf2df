// TensorParallelMuon on one rank: whole matrices, fused QKV split by its declared blocks.
#include "muoncore/cli/parity_groups.h"

namespace muoncore::cli {
namespace {

optim::MuonOptions options_of(const nlohmann::json& common, const nlohmann::json& hyper,
                              const UpstreamProfile& profile) {
  nlohmann::json all = common;
  all.update(hyper);
  all["weight_decay_method"] =
      hyper.at("use_decoupled_weight_decay").get<bool>() ? "decoupled" : "l2";
  return muon_options(all, profile);
}

std::vector<Distance> one_rank(const GoldenFolder& golden, const nlohmann::json& common,
                               const nlohmann::json& c, const UpstreamProfile& profile) {
  const std::string id = c.at("id"), name = id.substr(id.rfind('/') + 1),
                    file = "tp_muon.safetensors";
  at::Tensor param = golden.tensor(file, "in/param/" + name).requires_grad_();
  at::Tensor grads = golden.tensor(file, "in/grad/" + name);
  at::Tensor expected = golden.tensor(file, "tp1/" + id);
  optim::Muon muon(std::vector<at::Tensor>{param}, options_of(common, c.at("hyper"), profile));
  ParamSpec spec;
  spec.name = name;
  spec.shape = param.sizes().vec();
  if (!c.at("qkv_split_shapes").is_null())
    spec.blocks.rows = c.at("qkv_split_shapes").get<std::vector<int64_t>>();
  muon.set_spec(param, spec);
  const auto kept = common.at("steps_kept").get<std::vector<int64_t>>();
  std::vector<Distance> out;
  for (int64_t k = 1; k <= common.at("steps").get<int64_t>(); ++k) {
    param.mutable_grad() = grads.select(0, k - 1);
    muon.step();
    auto it = std::find(kept.begin(), kept.end(), k);
    if (it != kept.end())
      out.push_back(
          distance(param, expected.select(0, it - kept.begin()), c.at("atol"), c.at("rtol")));
  }
  return out;
}

}  // namespace

GroupReport replay_tensor_parallel(const GoldenFolder& golden, const UpstreamProfile& profile) {
  GroupReport report("tensor_parallel_muon");
  const auto& group = golden.group("tensor_parallel_muon");
  for (const auto& c : group.at("cases"))
    for (const std::string output : c.at("outputs"))
      if (output.starts_with("tp1/"))
        report.judge(output, one_rank(golden, group.at("common"), c, profile));
      else
        report.skip(output, "needs several ranks");
  return report;
}

}  // namespace muoncore::cli
