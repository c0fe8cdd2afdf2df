#include <ATen/ops/scalar_tensor.h>

#include "muoncore/cli/parity_groups.h"
#include "muoncore/muon/reference.h"

namespace muoncore::cli {
namespace {

muon::NewtonSchulzOptions options_of(const nlohmann::json& c, const UpstreamProfile& profile) {
  muon::NewtonSchulzOptions o;
  o.coefficient_type = c.at("coefficient_type");
  o.steps = c.at("steps");
  o.eps = c.value("eps", profile.ns_eps);
  o.precision = muon::parse_matmul_precision(c.value("fp32_matmul_precision", "highest"));
  o.upstream_exact = profile.upstream_exact;
  if (c.contains("transpose") && !c.at("transpose").is_null())
    o.transpose = c.at("transpose").get<bool>();
  if (c.contains("custom_coefficient_sets"))
    for (const auto& t : c.at("custom_coefficient_sets"))
      o.custom_coefficients.push_back({t[0], t[1], t[2]});
  return o;
}

}  // namespace

GroupReport replay_newton_schulz(const GoldenFolder& golden, const UpstreamProfile& profile) {
  GroupReport report("newton_schulz");
  for (const auto& c : golden.group("newton_schulz").at("cases")) {
    at::Tensor got =
        muon::newton_schulz(golden.tensor("ns.safetensors", c.at("input")), options_of(c, profile));
    at::Tensor expected = golden.tensor("ns.safetensors", c.at("output"));
    report.judge(c.at("id"),
                 {distance(got, expected, c.value("atol", 1e-6), c.value("rtol", 1e-5))});
  }
  return report;
}

GroupReport replay_alignment(const GoldenFolder& golden, const UpstreamProfile& profile) {
  GroupReport report("newton_schulz_alignment");
  const auto& group = golden.group("newton_schulz_alignment");
  for (const auto& row : group.at("rows")) {
    const std::string type = row.at("coefficient_type");
    at::Tensor x = golden.tensor("ns.safetensors", row.at("input"));
    at::Tensor polar = muon::reference::polar_factor(x);
    const double length = polar.square().sum().item<double>();
    // cans at a singular value of 1 sits on a steep part of its polynomial, where summation order
    // shows
    const double atol = type == "cans" ? 5e-3 : group.at("atol").get<double>();
    std::vector<Distance> distances;
    const auto& table = row.at("alignment_steps_1_to_10");
    for (size_t k = 0; k < table.size(); ++k) {
      muon::NewtonSchulzOptions o;
      o.coefficient_type = type;
      o.steps = static_cast<int64_t>(k) + 1;
      o.eps = profile.ns_eps;
      o.upstream_exact = profile.upstream_exact;
      at::Tensor alignment = muon::newton_schulz(x, o).to(at::kDouble).mul(polar).sum() / length;
      distances.push_back(
          distance(alignment, at::scalar_tensor(table[k].get<double>(), at::kDouble), atol, 0));
    }
    report.judge(row.at("input").get<std::string>() + "/" + type, distances);
  }
  return report;
}

}  // namespace muoncore::cli
