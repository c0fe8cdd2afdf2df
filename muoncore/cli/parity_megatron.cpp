// Megatron's whole optimizer on one rank: routing, clipping, Muon and AdamW, fp32 and bf16
// parameters.
#include <fmt/format.h>

#include "muoncore/cli/parity_groups.h"
#include "muoncore/cli/parity_megatron.h"
#include "muoncore/optim/build.h"
#include "muoncore/optim/grad_norm.h"

namespace muoncore::cli {

optim::OptimizerConfig megatron_config(const nlohmann::json& c, const UpstreamProfile& profile) {
  const auto& h = c.at("hyper");
  optim::OptimizerConfig o;
  o.optimizer = h.at("optimizer");
  o.lr = h.at("lr");
  o.min_lr = h.at("min_lr");
  o.weight_decay = h.at("weight_decay");
  o.betas = {h.at("adam_beta1").get<double>(), h.at("adam_beta2").get<double>()};
  o.adam_eps = h.at("adam_eps");
  o.clip_grad = h.at("clip_grad");
  o.muon_momentum = h.at("muon_momentum");
  o.muon_nesterov = h.at("muon_nesterov");
  o.muon_split_qkv = h.at("muon_split_qkv");
  o.muon_scale_mode = h.at("muon_scale_mode");
  o.muon_coefficient_type = h.at("muon_coefficient_type");
  o.muon_num_ns_steps = h.at("muon_num_ns_steps");
  o.muon_fp32_matmul_prec = h.at("muon_fp32_matmul_prec");
  o.muon_extra_scale_factor = h.at("muon_extra_scale_factor");
  o.muon_scalar_optimizer = h.at("muon_scalar_optimizer");
  o.decay_vectors =
      profile.decay_vectors_without_scheduler && !c.at("build").value("scheduler", true);
  return o;
}

// Upstream routes by the golden's own flag; the fused QKV weight is known by its name there.
ParamSpec megatron_spec(const nlohmann::json& row, const nlohmann::json& model) {
  ParamSpec spec;
  spec.name = row.at("name");
  spec.shape = row.at("shape").get<std::vector<int64_t>>();
  spec.role = spec.shape.size() == 1                         ? ParamRole::kBias
              : row.at("is_embedding_or_output").get<bool>() ? ParamRole::kEmbedding
                                                             : ParamRole::kMatrix;
  if (spec.name.ends_with("linear_qkv.weight")) {
    const int64_t width = model.at("kvc"),
                  queries = model.at("heads").get<int64_t>() / model.at("groups").get<int64_t>();
    spec.blocks.rows = {queries * width, width, width};
  }
  return spec;
}

void apply_profile(optim::ChainedOptimizer& chain, const UpstreamProfile& profile) {
  optim::ManagedOptimizer* muon = chain.child("muon");
  if (muon == nullptr) return;
  for (auto& group : muon->param_groups()) {
    auto& options = static_cast<optim::MuonOptions&>(group.options());
    options.ns_eps(profile.ns_eps).upstream_exact(profile.upstream_exact);
  }
}

namespace {

constexpr const char* kFile = kMegatronFile;

std::vector<Distance> one_rank(const GoldenFolder& golden, const nlohmann::json& group,
                               const nlohmann::json& c, const UpstreamProfile& profile) {
  const auto dtype = c.at("build").at("bf16").get<bool>() ? at::kBFloat16 : at::kFloat;
  std::vector<optim::NamedParam> params;
  for (const auto& row : group.at("param_specs")) {
    ParamSpec spec = megatron_spec(row, group.at("model"));
    at::Tensor tensor = golden.tensor(kFile, "in/param/" + spec.name).to(dtype).requires_grad_();
    params.push_back({spec, tensor});
  }
  auto chain = optim::build_optimizer(params, megatron_config(c, profile));
  apply_profile(*chain, profile);
  std::vector<Distance> out;
  for (int64_t k = 0; k < group.at("steps").get<int64_t>(); ++k) {
    for (auto& g : chain->param_groups()) g.set_lr(c.at("groups")[k][0].at("lr"));
    for (auto& p : params)
      p.tensor.mutable_grad() =
          golden.tensor(kFile, "in/grad/dp0/" + p.spec.name).select(0, k).contiguous();
    const optim::StepResult result = chain->step();
    out.push_back(number_distance(result.grad_norm, c.at("grad_norm")[k], 0, 1e-6));
    for (const auto& p : params) {
      at::Tensor expected =
          golden.tensor(kFile, "out/" + c.at("id").get<std::string>() + "/" + p.spec.name);
      out.push_back(distance(p.tensor, expected.select(0, k), c.at("atol"), c.at("rtol")));
    }
  }
  return out;
}

// Norms of any order, and what clipping makes of the gradients.
void replay_clipping(const GoldenFolder& golden, const nlohmann::json& rows, GroupReport& report) {
  std::vector<at::Tensor> grads;
  for (int i = 0; i < 4; ++i)
    grads.push_back(golden.tensor(kFile, fmt::format("in/clip/r0/g{}", i)));
  for (const auto& row : rows) {
    if (row.contains("empty_list_norm")) {
      report.judge("clip/w1/empty",
                   {number_distance(optim::grad_norm({}).norm, row.at("empty_list_norm"), 0, 0)});
    } else if (row.contains("norm_type")) {
      const std::string type = row.at("norm_type");
      const double norm = optim::grad_norm(grads, std::stod(type)).norm;
      report.judge("clip/w1/norm" + type, {number_distance(norm, row.at("total_norm"), 0, 1e-6)});
    } else {
      const double norm = optim::grad_norm(grads).norm, limit = row.at("max_norm");
      const double factor = optim::clip_coefficient(norm, limit);
      std::vector<Distance> distances{
          number_distance(norm, row.at("total_norm"), 0, 1e-6),
          number_distance(factor, std::min(1.0, row.at("clip_coeff").get<double>()), 0, 1e-6)};
      const std::string prefix = fmt::format("out/clip/w1/max{}", row.at("max_norm").dump());
      for (size_t i = 0; i < grads.size(); ++i)
        distances.push_back(distance(grads[i] * factor,
                                     golden.tensor(kFile, fmt::format("{}/g{}/r0", prefix, i)),
                                     1e-9, 2e-6));
      report.judge("clip/w1/max" + row.at("max_norm").dump(), distances);
    }
  }
}

}  // namespace

GroupReport replay_megatron(const GoldenFolder& golden, const UpstreamProfile& profile) {
  GroupReport report("megatron_optimizer");
  const auto& group = golden.group("megatron_optimizer");
  for (const auto& c : group.at("cases")) {
    const std::string id = c.at("id");
    if (c.at("world") != 1)
      report.judge(id, replay_ranks(golden, group, c, profile));
    else
      report.judge(id, one_rank(golden, group, c, profile));
  }
  replay_clipping(golden, group.at("grad_norm_clip").at("w1"), report);
  replay_clipping_on_two_ranks(golden, group.at("grad_norm_clip").at("w2"), report);
  return report;
}

}  // namespace muoncore::cli
