// Optimizer steps on recorded gradients.
#include "muoncore/cli/parity_groups.h"
#include "muoncore/core/check.h"
#include "muoncore/optim/adamw.h"
#include "muoncore/optim/lion.h"

namespace muoncore::cli {
namespace {

// Runs `steps` steps on one recorded parameter and compares it with the golden after each.
struct Trajectory {
  const GoldenFolder& golden;
  std::string file;
  at::Tensor param;  // leaf
  at::Tensor grads;  // [steps, ...]

  std::vector<Distance> run(optim::ManagedOptimizer& optimizer, const nlohmann::json& c,
                            const std::string& output) {
    at::Tensor expected = golden.tensor(file, output);
    std::vector<Distance> out;
    for (int64_t k = 0; k < c.at("steps").get<int64_t>(); ++k) {
      param.mutable_grad() = grads.select(0, k).to(param.scalar_type());
      optimizer.step();
      out.push_back(distance(param, expected.select(0, k), c.at("atol"), c.at("rtol")));
    }
    return out;
  }
};

Trajectory start(const GoldenFolder& golden, const std::string& file, const std::string& inputs,
                 const std::string& name, at::ScalarType dtype = at::kFloat) {
  return {golden, file, golden.tensor(file, inputs + "/param/" + name).to(dtype).requires_grad_(),
          golden.tensor(file, inputs + "/grad/" + name)};
}

void append(std::vector<Distance>& to, const std::vector<Distance>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::vector<Distance> muon_case(const GoldenFolder& golden, const nlohmann::json& c,
                                const UpstreamProfile& profile) {
  const std::string id = c.at("id");
  std::vector<Distance> out;
  for (const char* name : {"W0", "W1", "W2"}) {
    Trajectory t = start(golden, "muon.safetensors", "in", name);
    optim::Muon muon(std::vector<at::Tensor>{t.param}, muon_options(c.at("hyper"), profile));
    append(out, t.run(muon, c, id + "/param/" + name));
    out.push_back(distance(muon.param_state(t.param).at("momentum_buffer"),
                           golden.tensor(t.file, id + "/momentum_buffer/" + name), 1e-6, 1e-5));
  }
  return out;
}

// An optimizer of one parameter that is no matrix, as the golden's class and settings say.
std::unique_ptr<optim::ManagedOptimizer> scalar_optimizer(const nlohmann::json& c,
                                                          const at::Tensor& param) {
  const auto& h = c.at("hyper");
  const std::string cls = c.at("cls");
  const std::vector<at::Tensor> params{param};
  const std::tuple<double, double> betas{h.at("betas")[0].get<double>(),
                                         h.at("betas")[1].get<double>()};
  const double lr = h.at("lr"), weight_decay = h.at("weight_decay");
  if (cls.find("Lion") != std::string::npos)
    return std::make_unique<optim::Lion>(
        params, optim::LionOptions(lr).betas(betas).weight_decay(weight_decay));
  return std::make_unique<optim::AdamW>(
      params, optim::AdamWOptions(lr)
                  .betas(betas)
                  .eps(h.at("eps").get<double>())
                  .weight_decay(weight_decay)
                  .decoupled_weight_decay(cls.find("AdamW") != std::string::npos));
}

std::vector<Distance> scalar_case(const GoldenFolder& golden, const nlohmann::json& c) {
  std::vector<Distance> out;
  for (const char* name : {"b0", "b1", "E"}) {
    Trajectory t = start(golden, "muon.safetensors", "in_scalar", name);
    const auto optimizer = scalar_optimizer(c, t.param);
    append(out, t.run(*optimizer, c, c.at("id").get<std::string>() + "/param/" + name));
  }
  return out;
}

}  // namespace

optim::MuonOptions muon_options(const nlohmann::json& h, const UpstreamProfile& profile) {
  optim::MuonOptions o(h.at("lr").get<double>());
  o.momentum(h.at("momentum")).nesterov(h.at("nesterov")).weight_decay(h.at("weight_decay"));
  o.weight_decay_method(h.at("weight_decay_method"));
  o.fp32_matmul_prec(h.at("fp32_matmul_prec"));
  o.coefficient_type(h.at("coefficient_type"));
  o.num_ns_steps(h.at("num_ns_steps"));
  o.scale_mode(h.at("scale_mode"));
  o.extra_scale_factor(h.at("extra_scale_factor"));
  if (h.contains("moment2_method"))
    o.moment2_method(h.at("moment2_method")).beta2(h.at("beta2")).moment2_eps(h.at("eps"));
  o.ns_eps(profile.ns_eps).upstream_exact(profile.upstream_exact);
  return o;
}

GroupReport replay_trajectories(const GoldenFolder& golden, const UpstreamProfile& profile) {
  GroupReport report("muon_trajectories");
  for (const auto& c : golden.group("muon_trajectories").at("cases")) {
    const std::string id = c.at("id"), cls = c.at("cls");
    if (cls.find("Muon") != std::string::npos)
      report.judge(id, muon_case(golden, c, profile));
    else
      report.judge(id, scalar_case(golden, c));
  }
  return report;
}

GroupReport replay_torch_muon(const GoldenFolder& golden, const UpstreamProfile& profile) {
  GroupReport report("torch_muon");
  for (const auto& c : golden.group("torch_muon").at("cases")) {
    const auto& h = c.at("hyper");
    const std::string id = c.at("id");
    const auto dtype = c.at("dtype") == "torch.bfloat16" ? at::kBFloat16 : at::kFloat;
    optim::MuonOptions o(h.at("lr").get<double>());
    o.momentum(h.at("momentum")).nesterov(h.at("nesterov")).weight_decay(h.at("weight_decay"));
    o.coefficient_type("custom").custom_coefficients(
        h.at("ns_coefficients").get<std::vector<double>>());
    o.num_ns_steps(h.at("ns_steps"))
        .ns_eps(h.at("eps").get<double>())
        .upstream_exact(profile.upstream_exact);
    o.scale_mode(h.at("adjust_lr_fn").is_null() ? "original"
                                                : h.at("adjust_lr_fn").get<std::string>());
    std::vector<Distance> distances;
    for (const char* name : {"W0", "W1", "W2"}) {
      Trajectory t = start(golden, "torch_muon.safetensors", "in", name, dtype);
      optim::Muon muon(std::vector<at::Tensor>{t.param}, o);
      append(distances, t.run(muon, c, id + "/param/" + name));
    }
    report.judge(id, distances);
  }
  return report;
}

}  // namespace muoncore::cli
