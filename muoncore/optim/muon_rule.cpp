#include "muoncore/optim/muon_rule.h"

#include "muoncore/core/check.h"

namespace muoncore::optim {
namespace {

std::vector<muon::Coefficients> triples_of(const std::vector<double>& flat) {
  check(flat.size() % 3 == 0,
        "custom_coefficients hold a, b, c of each step: {} numbers are not a multiple of 3",
        flat.size());
  std::vector<muon::Coefficients> out;
  for (size_t i = 0; i < flat.size(); i += 3) out.push_back({flat[i], flat[i + 1], flat[i + 2]});
  return out;
}

void check_numbers(const MuonOptions& o) {
  check(o.lr() >= 0, "Muon's lr must be at least 0, got {}", o.lr());
  check(o.momentum() >= 0 && o.momentum() < 1, "Muon's momentum must be in [0, 1), got {}",
        o.momentum());
  check(o.weight_decay() >= 0, "Muon's weight_decay must be at least 0, got {}", o.weight_decay());
  check(o.extra_scale_factor() > 0, "Muon's extra_scale_factor must be above 0, got {}",
        o.extra_scale_factor());
  check(!o.ns_eps() || *o.ns_eps() >= 0, "Muon's ns_eps must be at least 0, got {}",
        o.ns_eps().value_or(0));
  check(o.beta2() >= 0 && o.beta2() < 1, "Muon's beta2 must be in [0, 1), got {}", o.beta2());
  check(o.moment2_eps() > 0, "Muon's moment2_eps must be above 0, got {}", o.moment2_eps());
  const auto [beta1, beta2] = o.match_betas();
  for (double beta : {beta1, beta2})
    check(beta >= 0 && beta < 1, "Muon's match_betas must be in [0, 1), got {}", beta);
  check(o.match_eps() > 0, "Muon's match_eps must be above 0, got {}", o.match_eps());
}

void check_pairs(const MuonRule& r) {
  const bool namo = r.moment2 == muon::SecondMoment::kNamo;
  check(!namo || r.decay != muon::WeightDecayMethod::kL2,
        "moment2_method namo needs a gradient without weight decay in it: not weight_decay_method "
        "l2");
  check(!namo || r.momentum_kind == muon::MomentumKind::kEma,
        "moment2_method namo compares the size of the momentum with that of the gradient: it needs "
        "momentum_kind ema");
  check(!r.orthogonalize.newton_schulz.eps || r.orthogonalize.pre == muon::PreTransform::kNone,
        "ns_eps is upstream's clamp on the size of the momentum, which a pre_transform takes away: "
        "leave one of the two out");
  check(!r.align_update_rms ||
            (!namo && !r.hyperball && r.orthogonalize.post != muon::PostTransform::kFrobenius &&
             r.scale == muon::ScaleMode::kSpectral),
        "align_update_rms sets the size of every update itself: moment2_method namo, hyperball, "
        "post_transform frobenius and a scale_mode would do nothing");
  if (!r.hyperball) return;
  check(!namo && r.orthogonalize.post != muon::PostTransform::kFrobenius,
        "hyperball sets the size of every update itself: moment2_method namo and post_transform "
        "frobenius would do nothing");
  check(r.extra_scale_factor == 1.0 && r.match == AdamWMatch::kNone &&
            r.scale == muon::ScaleMode::kSpectral,
        "hyperball sets the size of every update itself: leave scale_mode, extra_scale_factor and "
        "adamw_match at their defaults");
}

muon::NewtonSchulzOptions newton_schulz_of(const MuonOptions& o) {
  muon::NewtonSchulzOptions out;
  out.coefficient_type = o.coefficient_type();
  out.custom_coefficients = triples_of(o.custom_coefficients());
  out.custom_mode = muon::parse_iteration_mode(o.custom_iteration_mode());
  out.steps = o.num_ns_steps();
  out.precision = muon::parse_matmul_precision(o.fp32_matmul_prec());
  out.eps = o.ns_eps();
  out.upstream_exact = o.upstream_exact();
  muon::resolve_coefficients(out);
  return out;
}

}  // namespace

std::vector<std::string> MuonRule::state_names() const {
  std::vector<std::string> names{"momentum_buffer"};
  if (moment2 != muon::SecondMoment::kNone) names.emplace_back("second_moment");
  if (hyperball) names.emplace_back("radius");
  if (counts_steps()) names.emplace_back("step");
  if (match == AdamWMatch::kMeasured) {
    names.emplace_back("shadow_exp_avg");
    names.emplace_back("shadow_exp_avg_sq");
  }
  return names;
}

MuonRule resolve_rule(const MuonOptions& o) {
  check_numbers(o);
  MuonRule rule;
  rule.lr = o.lr();
  rule.momentum = o.momentum();
  rule.weight_decay = o.weight_decay();
  rule.extra_scale_factor = o.extra_scale_factor();
  rule.nesterov = o.nesterov();
  rule.hyperball = o.hyperball();
  rule.align_update_rms = o.align_update_rms();
  rule.stochastic_rounding = o.stochastic_rounding();
  rule.seed = static_cast<uint64_t>(o.seed());
  rule.momentum_kind = muon::parse_momentum_kind(o.momentum_kind());
  rule.decay = muon::parse_weight_decay_method(o.weight_decay_method());
  rule.orthogonalize.pre = muon::parse_pre_transform(o.pre_transform());
  rule.orthogonalize.newton_schulz = newton_schulz_of(o);
  rule.orthogonalize.post = muon::parse_post_transform(o.post_transform());
  rule.scale = muon::parse_scale_mode(o.scale_mode());
  rule.moment2 = muon::parse_second_moment(o.moment2_method());
  rule.beta2 = o.beta2();
  rule.moment2_eps = o.moment2_eps();
  rule.match = parse_adamw_match(o.adamw_match());
  const auto [beta1, beta2] = o.match_betas();
  rule.shadow = {beta1, beta2, o.match_eps()};
  check_pairs(rule);
  return rule;
}

void check_options(const MuonOptions& options) { resolve_rule(options); }

}  // namespace muoncore::optim
