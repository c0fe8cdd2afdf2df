// Muon's step once more, naively, in fp64: the formulas of muoncore/optim/muon.h and of the stages'
// headers. Shares with the optimizer the splitting into blocks, the coefficient tables and the
// place of the sampled rows.
#pragma once

#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "muoncore/muon/matrix_blocks.h"
#include "muoncore/muon/reference.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/optim/muon.h"
#include "muoncore/optim/rms_match.h"

namespace muoncore::optim {

struct MuonReference {
  const MuonOptions& o;
  const RowBlocks& blocks;
  at::ScalarType dtype;
  at::Tensor p, m, shadow_m, shadow_v;
  std::vector<at::Tensor> moments, radii;
  int64_t steps = 0;
  double factor = 1;
  // The length of the path that updates made; `moved`: each times the factor by which its
  // normalizations can stretch a relative error.
  double moved = 0, moved_plain = 0;

  MuonReference(const at::Tensor& param, const MuonOptions& options, const RowBlocks& row_blocks)
      : o(options),
        blocks(row_blocks),
        dtype(param.scalar_type()),
        p(param.detach().to(at::kDouble).clone()),
        m(at::zeros_like(p)) {
    shadow_m = at::zeros_like(sample(p));
    shadow_v = at::zeros_like(shadow_m);
    for (const at::Tensor& part : muon::split_blocks(p, blocks)) radii.push_back(norm(part));
  }

  static muon::NewtonSchulzOptions newton_schulz_of(const MuonOptions& o) {
    muon::NewtonSchulzOptions ns;
    ns.coefficient_type = o.coefficient_type();
    ns.steps = o.num_ns_steps();
    ns.eps = o.ns_eps();
    return ns;
  }

  static at::Tensor norm(const at::Tensor& x) {
    return at::linalg_vector_norm(x, 2, at::IntArrayRef({-2, -1}), true);
  }
  static at::Tensor sample(const at::Tensor& x) {
    return at::index_select(x, -2, at::tensor(sampled_rows(x.size(-2)), at::kLong));
  }

  double decay_rate() const {
    const std::string& method = o.weight_decay_method();
    if (method == "decoupled") return o.weight_decay() * o.lr();
    if (method == "independent") return o.weight_decay();
    return method == "palm" ? o.weight_decay() * o.lr() * o.lr() : 0.0;
  }

  double match_factor(const at::Tensor& grad) {
    const auto [b1, b2] = o.match_betas();
    const double t = static_cast<double>(steps);
    if (o.adamw_match() == "none") return 1.0;
    if (o.adamw_match() == "bias_corrected")
      return std::sqrt((1 - b1) / (1 + b1) * (1 + std::pow(b1, t)) / (1 - std::pow(b1, t)));
    const at::Tensor g = sample(grad);
    shadow_m = shadow_m * b1 + g * (1 - b1);
    shadow_v = shadow_v * b2 + g * g * (1 - b2);
    const at::Tensor u = shadow_m / (1 - std::pow(b1, t)) /
                         ((shadow_v / (1 - std::pow(b2, t))).sqrt() + o.match_eps());
    return std::sqrt(u.square().mean().item<double>());
  }

  // How much dividing rows (dim -1) or columns by sqrt(length^2 + eps) can stretch a relative
  // error.
  static double stretch(const at::Tensor& x, int64_t dim, double eps) {
    const at::Tensor lengths = (x.square().sum(dim, true) + eps).sqrt();
    const double after = (x / lengths).norm().item<double>();
    const double shortest = lengths.min().item<double>();
    return after > 0 ? std::max(1.0, 2 * x.norm().item<double>() / (shortest * after)) : 1.0;
  }

  double post_stretch(const at::Tensor& x) const {
    const std::string& post = o.post_transform();
    if (post == "muon_plus_rows") return stretch(x, -1, 1e-7);
    if (post == "muon_plus_columns") return stretch(x, -2, 1e-7);
    const bool rows_first = post == "muon_plus_rows_columns";
    if (!rows_first && post != "muon_plus_columns_rows") return 1.0;
    const auto first = rows_first ? muon::PostTransform::kRows : muon::PostTransform::kColumns;
    return stretch(x, rows_first ? -1 : -2, 1e-7) *
           stretch(muon::reference::post_transform(x, first), rows_first ? -2 : -1, 1e-7);
  }

  at::Tensor second_moment(size_t k, const at::Tensor& x, const at::Tensor& direction,
                           const at::Tensor& grad, double& amplified) {
    const std::string& method = o.moment2_method();
    if (method == "none") return x;
    const int64_t side = x.size(-2) >= x.size(-1) ? -1 : -2;
    const at::Tensor now = method == "adamuon"   ? x.square()
                           : method == "normuon" ? x.square().mean(side, true)
                                                 : norm(grad).square();
    if (moments.size() <= k) moments.push_back(at::zeros_like(now));
    at::Tensor& v = moments[k];
    v = v * o.beta2() + now * (1 - o.beta2());
    const double eps = o.moment2_eps();
    if (method == "adamuon") {
      amplified *= 1e6;  // an element near zero counts as much as any other; fp64 alone
      return x / (v.sqrt() + eps);
    }
    if (method == "namo") return x * (norm(direction) / (v.sqrt() + eps));
    const at::Tensor w = x / v.clamp_min(eps).sqrt();
    const at::Tensor lengths = v.clamp_min(eps).sqrt();
    const double after = w.norm().item<double>();
    if (after > 0)
      amplified *=
          std::max(1.0, 2 * x.norm().item<double>() / (lengths.min().item<double>() * after));
    return w * norm(x) / norm(w).clamp_min(eps);
  }

  // x to the norms in `lengths`, per slice; zero stays zero.
  static at::Tensor to_length(const at::Tensor& x, const at::Tensor& lengths) {
    const at::Tensor length = norm(x);
    return x * (lengths / length).masked_fill(length <= 1e-15, 0.0);
  }

  at::Tensor update_of(size_t k, const at::Tensor& direction, const at::Tensor& grad,
                       double& amplified) {
    const auto pre = muon::parse_pre_transform(o.pre_transform());
    const auto post = muon::parse_post_transform(o.post_transform());
    at::Tensor x = muon::reference::newton_schulz(muon::reference::pre_transform(direction, pre),
                                                  newton_schulz_of(o));
    amplified *= post_stretch(x);
    x = second_moment(k, muon::reference::post_transform(x, post), direction, grad, amplified);
    // x / ||x|| at most doubles a relative error of x; Hyperball does it with the weights too
    if (o.hyperball() || o.align_update_rms() || o.post_transform() == "frobenius") amplified *= 2;
    if (o.hyperball()) amplified *= 2;
    if (o.hyperball()) return to_length(x, radii[k]) * o.lr();
    if (o.align_update_rms()) {
      const double elements = static_cast<double>(x.size(-2) * x.size(-1));
      return to_length(x, at::full({}, std::sqrt(elements), at::kDouble)) * (factor * o.lr());
    }
    const double scale =
        muon::scale_factor(muon::parse_scale_mode(o.scale_mode()), x.size(-2), x.size(-1));
    return x * (scale * factor * o.lr());
  }

  void step(const at::Tensor& gradient, double clip) {
    ++steps;
    const double mu = o.momentum();
    at::Tensor g = gradient.to(at::kDouble) * clip;
    factor = o.extra_scale_factor() * match_factor(g);
    p = p * (1 - decay_rate());
    if (o.weight_decay_method() == "l2") g = g + p * o.weight_decay();
    const double share = o.momentum_kind() == "ema" ? 1 - mu : 1.0;
    m = m * mu + g * share;
    const at::Tensor u = o.nesterov() ? m * mu + g * share : m;
    const auto directions = muon::split_blocks(u, blocks), grads = muon::split_blocks(g, blocks);
    std::vector<at::Tensor> parts;
    double amplified = 1;
    for (size_t k = 0; k < directions.size(); ++k) {
      double own = 1;
      parts.push_back(update_of(k, directions[k], grads[k], own));
      amplified = std::max(amplified, own);
    }
    const at::Tensor update = muon::merge_blocks(parts, blocks, p.sizes());
    moved += amplified * update.norm().item<double>();
    moved_plain += update.norm().item<double>();
    if (o.weight_decay_method() == "cautious")
      p = p - p * (update * p >= 0).to(at::kDouble) * (o.weight_decay() * o.lr());
    p = p - update;
    if (o.hyperball()) project();
    if (dtype == at::kBFloat16) p = p.to(at::kFloat).to(at::kBFloat16).to(at::kDouble);
  }

  void project() {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : muon::split_blocks(p, blocks))
      parts.push_back(to_length(part, radii[parts.size()]));
    p = muon::merge_blocks(parts, blocks, p.sizes());
  }
};

}  // namespace muoncore::optim
