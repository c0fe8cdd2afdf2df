// The Gram form of Newton-Schulz, and the Muon that its package builds on it: classical momentum M
// <- mu M + G, the direction rounded to bf16 before the orthogonalization. The package computes in
// fp16, we in fp32.
#include "muoncore/cli/parity_groups.h"
#include "muoncore/core/check.h"
#include "muoncore/muon/gram.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/muon/update_rule.h"

namespace muoncore::cli {
namespace {

constexpr const char* kFile = "gram_ns.safetensors";

muon::NewtonSchulzOptions options_of(const nlohmann::json& triples,
                                     const UpstreamProfile& profile) {
  muon::NewtonSchulzOptions o;
  o.coefficient_type = "custom";
  for (const auto& t : triples) o.custom_coefficients.push_back({t[0], t[1], t[2]});
  o.steps = static_cast<int64_t>(o.custom_coefficients.size());
  o.upstream_exact = profile.upstream_exact;
  return o;
}

std::vector<Distance> function_case(const GoldenFolder& golden, const nlohmann::json& c,
                                    const UpstreamProfile& profile) {
  const std::string form = c.at("fn");
  const auto o = options_of(c.at("coefficients"), profile);
  at::Tensor x = golden.tensor(kFile, c.at("input"));
  at::Tensor got = form.ends_with("gram_reset2")
                       ? muon::gram_newton_schulz(x, o, std::vector<int64_t>{2})
                       : muon::newton_schulz(x, o);
  return {distance(got, golden.tensor(kFile, c.at("id")), c.at("atol"), c.at("rtol"))};
}

double adjusted_lr(const nlohmann::json& hyper, int64_t rows, int64_t cols) {
  const double lr = hyper.at("lr");
  if (hyper.at("adjust_lr").is_null()) return lr;
  const std::string rule = hyper.at("adjust_lr");
  if (rule == "rms_norm")
    return lr * muon::scale_factor(muon::ScaleMode::kMatchRmsAdamw, rows, cols);
  if (rule == "spectral_norm")
    return lr * muon::scale_factor(muon::ScaleMode::kUnitRmsNorm, rows, cols);
  fail("the golden's adjust_lr '{}' is not one of rms_norm, spectral_norm", rule);
}

std::vector<Distance> muon_case(const GoldenFolder& golden, const nlohmann::json& c,
                                const nlohmann::json& triples, const UpstreamProfile& profile) {
  const auto& h = c.at("hyper");
  const auto o = options_of(triples, profile);
  const auto restarts = h.at("gram_newton_schulz_restart_iterations").get<std::vector<int64_t>>();
  const double momentum = h.at("momentum");
  const std::string id = c.at("id");
  std::vector<Distance> out;
  for (const std::string name : {"W0", "W1", "W2"}) {
    at::Tensor p = golden.tensor(kFile, "in_muon/param/" + name), m = p.mul(0);
    at::Tensor grads = golden.tensor(kFile, "in_muon/grad/" + name),
               expected = golden.tensor(kFile, id + "/param/" + name);
    for (int64_t k = 0; k < c.at("steps").get<int64_t>(); ++k) {
      at::Tensor g = grads.select(0, k);
      m.mul_(momentum).add_(g);
      at::Tensor direction =
          (h.at("nesterov").get<bool>() ? g + m * momentum : m).to(at::kBFloat16);
      muon::apply_weight_decay_(p, muon::WeightDecayMethod::kDecoupled, h.at("weight_decay"),
                                h.at("lr"));
      p.add_(muon::gram_newton_schulz(direction.to(at::kFloat), o, restarts),
             -adjusted_lr(h, p.size(0), p.size(1)));
      out.push_back(distance(p, expected.select(0, k), c.at("atol"), c.at("rtol")));
    }
    out.push_back(distance(m, golden.tensor(kFile, id + "/momentum/" + name), 1e-6, 1e-5));
  }
  return out;
}

}  // namespace

GroupReport replay_gram(const GoldenFolder& golden, const UpstreamProfile& profile) {
  GroupReport report("gram_newton_schulz");
  const auto& cases = golden.group("gram_newton_schulz").at("cases");
  nlohmann::json default_triples;  // the package's: those of its polar_express cases
  for (const auto& c : cases)
    if (c.at("id").get<std::string>().starts_with("out/polar_express/"))
      default_triples = c.at("coefficients");
  for (const auto& c : cases)
    report.judge(c.at("id"), c.contains("fn") ? function_case(golden, c, profile)
                                              : muon_case(golden, c, default_triples, profile));
  return report;
}

}  // namespace muoncore::cli
