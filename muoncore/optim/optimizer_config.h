// The optimizer's settings as plain data, under verl's and Megatron's key names; defaults are those
// of verl's trainer/config/optim/megatron.yaml, but for muon_tp_mode (design.md, "Decisions": the
// result must not depend on the tensor-parallel size). Filled by train/config, checked by
// validate().
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muoncore/optim/matrix_layout.h"
#include "muoncore/optim/muon.h"
#include "muoncore/optim/param_scheduler.h"
#include "muoncore/optim/routing.h"

namespace muoncore::optim {

struct OptimizerConfig {
  std::string optimizer = "adam";  // muon, adam (= adamw: decoupled weight decay)
  double lr = 1e-3;
  double min_lr = 0.0;
  double weight_decay = 0.01;
  std::array<double, 2> betas{
      0.9, 0.999};  // the one source for AdamW and for muon_match_adamw_update_rms
  double adam_eps = 1e-8;
  double clip_grad = 1.0;  // 0: off

  // Learning-rate and weight-decay schedule.
  int64_t total_training_steps = -1;  // must be set (> 0) for a scheduler
  double lr_warmup_init = 0.0;
  int64_t lr_warmup_steps = -1;  // <= 0: int(lr_warmup_steps_ratio * lr_decay_steps)
  double lr_warmup_steps_ratio = 0.0;
  std::optional<int64_t> lr_decay_steps;  // none: total_training_steps
  std::string lr_decay_style = "constant";
  std::string weight_decay_incr_style = "constant";
  // none: weight_decay (Megatron's keys; verl has only the constant)
  std::optional<double> start_weight_decay;
  std::optional<double> end_weight_decay;
  std::string lr_wsd_decay_style = "exponential";
  std::optional<int64_t> lr_wsd_decay_steps;

  // Muon.
  double muon_momentum = 0.95;
  bool muon_nesterov = false;
  // false: parameters that fuse several matrices are orthogonalized as one
  bool muon_split_qkv = true;
  std::string muon_scale_mode = "spectral";
  std::string muon_coefficient_type = "quintic";
  int64_t muon_num_ns_steps = 5;
  std::string muon_tp_mode = "duplicated";
  std::string muon_fp32_matmul_prec = "medium";
  std::string muon_ns_impl = "standard";
  double muon_extra_scale_factor = 1.0;        // 1: not set
  std::string muon_scalar_optimizer = "adam";  // adam (= adamw), lion
  bool muon_match_adamw_update_rms = false;
  std::string muon_match_adamw_update_rms_mode = "stationary";  // optim/rms_match.h
  // none: scale-free; else norms are clamped to it (upstream: 1e-7)
  std::optional<double> muon_ns_eps;
  // Variants of the stages; each is documented where it is computed (muon/).
  std::string muon_momentum_kind = "ema";
  std::string muon_weight_decay_method = "decoupled";
  std::vector<double> muon_custom_coefficients;  // a, b, c of each step
  std::string muon_custom_iteration_mode = "cycle";
  std::string muon_pre_transform = "none";
  std::string muon_post_transform = "none";
  std::string muon_moment2_method = "none";
  double muon_moment2_beta2 = 0.95;
  double muon_moment2_eps = 1e-8;
  bool muon_hyperball = false;
  bool muon_align_update_rms = false;
  // bf16 matrices: masters (in fp32, rounded once per step into the model's), or none; then the
  // parameter itself is updated in fp32 and rounded, nearest or stochastic (muon/rounding.h).
  std::string muon_bf16_params = "masters";
  int64_t seed = 0;  // of stochastic rounding

  std::array<double, 2> lion_betas{0.95, 0.98};
  // false: Adam, whose weight decay is an L2 term in the gradient
  bool adam_decoupled_weight_decay = true;

  // What AdamW (or Lion) updates in a Muon run, where it is to differ; none: as Muon.
  // adam_weight_decay stays constant, whatever weight_decay_incr_style says.
  std::optional<double> adam_lr;
  std::optional<double> adam_min_lr;
  std::optional<double> adam_weight_decay;

  std::vector<RoutingRule> routing_rules;
  std::vector<LayoutRule> muon_matrix_layouts;
  // Largest attention logit that the trainer leaves to a head (models/qk_clip.h); none: off.
  std::optional<double> muon_qk_clip_tau;
  // true: weight decay on biases and 1-D parameters too (Megatron without a scheduler)
  bool decay_vectors = false;
  bool measure_update_rms = true;
};

// Throws on every value out of range, unknown name and contradictory pair; names the key, the
// value, what is allowed and the nearest name. `prefix` goes before each key in messages
// ("actor_rollout_ref.actor.optim.").
void validate(const OptimizerConfig& config, const std::string& prefix = "");

// The options of Muon that these settings describe. Throws as validate() does.
MuonOptions muon_options(const OptimizerConfig& config, const std::string& prefix = "");

// The scalar optimizer's name, which is that of its child of the chain: adam or lion.
std::string scalar_optimizer(const OptimizerConfig& config);

// True when config.optimizer is Muon. Throws on an unknown optimizer.
bool uses_muon(const OptimizerConfig& config, const std::string& prefix = "");

// The constant factor that Muon really uses: muon::adamw_rms_match_scale_factor(betas[0]) under
// muon_match_adamw_update_rms in its stationary mode, else muon_extra_scale_factor (1 in the other
// modes, whose factor each step resolves: StepResult::extra_scale_factor). Throws where the two
// contradict each other, or the scale mode or a variant breaks the match.
double resolved_extra_scale_factor(const OptimizerConfig& config, const std::string& prefix = "");

// The schedule these settings describe. Throws as OptimizerParamScheduler does, and without
// total_training_steps.
SchedulerOptions scheduler_options(const OptimizerConfig& config, const std::string& prefix = "");

}  // namespace muoncore::optim
