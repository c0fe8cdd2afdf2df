// Options of the optimizer: verl's trainer/config/optim/megatron.yaml in its order, then the keys
// of verl's dataclass that the file does not have, then ours.
#include "muoncore/train/config_tables.h"

namespace muoncore::train {
namespace {

const std::vector<std::string> kScaleModes = {"spectral", "unit_rms_norm", "shape_scaling"};
const std::vector<std::string> kCoefficientTypes = {
    "quintic", "simple", "polar_express", "aol", "cans", "deepseekv4", "cubic5", "custom"};
const std::vector<std::string> kFp32 = {"fp32", "float32"};

constexpr const char* kPrecisionAware =
    "optimizer states in another precision than fp32 are not built yet";

std::vector<Row> schedule_rows(double lr) {
  return {
      real("lr", lr, "learning rate").above(0),
      real("lr_warmup_steps_ratio", 0.0,
           "warm-up as a share of lr_decay_steps, where lr_warmup_steps is not positive")
          .at_least(0)
          .below(1),
      only_integer("total_training_steps", -1,
                   "the trainer fills it in; set trainer.total_training_steps"),
      real("weight_decay", 0.01, "decoupled weight decay: p -= lr * weight_decay * p").at_least(0),
      integer("lr_warmup_steps", -1, "steps of linear warm-up; not positive: by the ratio")
          .at_least(-1)
          .or_null(),
      reals("betas", {0.9, 0.999},
            "AdamW's decay rates, and the source of muon_match_adamw_update_rms")
          .at_least(0)
          .below(1)
          .elements(2),
      real("clip_grad", 1.0, "largest global norm of the gradients; 0: no clipping").at_least(0),
      text("optimizer", "adam", "adam and adamw both mean AdamW with decoupled weight decay")
          .one_of({"adam", "adamw", "muon"}),
      real("lr_warmup_init", 0.0, "learning rate at step 0 of a warm-up").at_least(0),
      null_integer("lr_decay_steps", "length of the schedule; null: total training steps")
          .at_least(1),
      text("lr_decay_style", "constant", "shape of the schedule after the warm-up")
          .one_of({"constant", "linear", "cosine", "inverse-square-root", "WSD"}),
      real("min_lr", 0.0, "learning rate at the end of the decay").at_least(0),
      text("weight_decay_incr_style", "constant", "how weight decay goes from its start to its end")
          .one_of({"constant", "linear", "cosine"}),
      text("lr_wsd_decay_style", "exponential", "shape of the last phase of WSD")
          .one_of({"exponential", "linear", "cosine", "minus_sqrt"}),
      null_integer("lr_wsd_decay_steps", "length of the last phase of WSD, which needs it")
          .at_least(1),
      flag("use_checkpoint_opt_param_scheduler", false,
           "either value: a resumed run always restores the schedule")
          .says("a resumed run always restores the schedule, whatever is written here"),
      only_flag("use_precision_aware_optimizer", false, kPrecisionAware),
      text("main_grads_dtype", "fp32", "precision of gradients in the optimizer")
          .one_of(kFp32)
          .why(kPrecisionAware),
      text("exp_avg_dtype", "fp32", "precision of AdamW's first moment")
          .one_of(kFp32)
          .why(kPrecisionAware),
      text("exp_avg_sq_dtype", "fp32", "precision of AdamW's second moment")
          .one_of(kFp32)
          .why(kPrecisionAware),
  };
}

std::vector<Row> muon_rows() {
  return {
      flag("use_layer_wise_distributed_optimizer", false,
           "each of Muon's matrices owned whole by one rank; Muon with use_distributed_optimizer "
           "implies it"),
      null_flag("use_layer_wise_param_layout", "buffers laid out by owner")
          .one_of({"True"})
          .why("buffers of the layer-wise optimizer are always laid out by owner"),
      real("muon_momentum", 0.95, "decay rate of the momentum: M <- lerp(M, g, 1 - momentum)")
          .at_least(0)
          .below(1),
      flag("muon_nesterov", false, "orthogonalize lerp(g, M, momentum) instead of M"),
      flag("muon_split_qkv", true, "orthogonalize fused Q, K and V (and gate and up) each alone"),
      text("muon_scale_mode", "spectral",
           "how a matrix' shape scales its update: spectral sqrt(max(out, in)), unit_rms_norm "
           "sqrt(out/in), shape_scaling sqrt(max(1, out/in))")
          .one_of(kScaleModes),
      text("muon_coefficient_type", "quintic", "polynomial of Newton-Schulz")
          .one_of(kCoefficientTypes),
      integer("muon_num_ns_steps", 5, "steps of Newton-Schulz").at_least(1).at_most(99),
      text("muon_tp_mode", "duplicated",
           "what tensor parallelism orthogonalizes: the whole matrix (duplicated: every rank; "
           "distributed: its products shared out; layer_sharded: one rank each, the cheapest) or "
           "each rank's shard (blockwise); in one process they are the same")
          .one_of({"duplicated", "distributed", "layer_sharded", "blockwise"})
          .verl("blockwise"),
      text("muon_fp32_matmul_prec", "medium",
           "Newton-Schulz' iterates: highest and high in fp32, medium in bf16")
          .one_of({"highest", "high", "medium"}),
      real("muon_extra_scale_factor", 1.0, "factor on Muon's update; 1.0 counts as not set")
          .above(0),
      text("muon_scalar_optimizer", "adam", "optimizer of what Muon does not update")
          .one_of({"adam", "lion"}),
      flag("muon_match_adamw_update_rms", false,
           "derive the factor from AdamW, so that update sizes match: see "
           "muon_match_adamw_update_rms_mode"),
  };
}

// Variants of Muon's stages.
std::vector<Row> variant_rows() {
  return {
      text("muon_match_adamw_update_rms_mode", "stationary",
           "what is matched: stationary sqrt((1 - b) / (1 + b)) with b = betas[0] (verl's), "
           "bias_corrected that times sqrt((1 + b^t) / (1 - b^t)) at step t, measured the update "
           "RMS of an AdamW that runs beside on 8 rows of each matrix")
          .one_of({"stationary", "bias_corrected", "measured"}),
      text("muon_momentum_kind", "ema",
           "ema M <- lerp(M, g, 1 - momentum), classical M <- momentum * M + g")
          .one_of({"ema", "classical"}),
      text(
          "muon_weight_decay_method", "decoupled",
          "decoupled p -= lr wd p, independent p -= wd p, palm p -= lr^2 wd p, l2 in the gradient, "
          "cautious decoupled where it agrees with the update")
          .one_of({"none", "decoupled", "independent", "palm", "l2", "cautious"}),
      reals("muon_custom_coefficients", {},
            "a, b, c of each step, one after another, for muon_coefficient_type: custom"),
      text("muon_custom_iteration_mode", "cycle",
           "what follows the last custom triple when muon_num_ns_steps asks for more")
          .one_of({"cycle", "repeat_last"}),
      null_real("muon_ns_eps",
                "upstream's clamp of the norm before Newton-Schulz (1e-7 there), under which small "
                "gradients lose their step; null: scale-free")
          .at_least(0),
      text("muon_pre_transform", "none",
           "before the orthogonalization: sign, or MuonEq's equilibration of rows, columns or both")
          .one_of({"none", "sign", "muoneq_rows", "muoneq_columns", "muoneq_both"}),
      text("muon_post_transform", "none",
           "after it: Muon+'s normalization of rows, columns or one after the other, or the "
           "Frobenius norm to sqrt(min(out, in))")
          .one_of({"none", "muon_plus_rows", "muon_plus_columns", "muon_plus_columns_rows",
                   "muon_plus_rows_columns", "frobenius"}),
      text("muon_moment2_method", "none", "second moment of the orthogonalized update")
          .one_of({"none", "adamuon", "normuon", "namo"}),
      real("muon_moment2_beta2", 0.95, "decay rate of the second moment").at_least(0).below(1),
      real("muon_moment2_eps", 1e-8, "its epsilon").above(0),
      flag(
          "muon_hyperball", false,
          "every matrix keeps the norm that it starts with, and lr is the relative size of a step"),
      flag("muon_align_update_rms", false,
           "every matrix' update, after its second moment, to an RMS of 1 in place of "
           "muon_scale_mode (AdaMuon's and NorMuon's papers, with a factor of 0.2)"),
      text("muon_bf16_params", "masters",
           "bf16 matrices: fp32 masters, or none and the parameter rounded to the nearest or "
           "stochastically (keyed by trainer.seed, step, name, element)")
          .one_of({"masters", "nearest", "stochastic"}),
      real("lion_beta1", 0.95, "Lion's weight of the momentum in its sign").at_least(0).below(1),
      real("lion_beta2", 0.98, "decay rate of Lion's momentum").at_least(0).below(1),
  };
}

std::vector<Row> our_rows() {
  std::vector<Row> rows{
      real("adam_eps", 1e-8, "AdamW's epsilon").above(0).added(),
      flag("adam_decoupled_weight_decay", true,
           "AdamW; false: Adam, whose weight decay is a term of the gradient"),
      null_real("adam_lr", "learning rate of what AdamW (or Lion) updates in a Muon run; null: lr")
          .above(0),
      null_real("adam_min_lr", "min_lr of what AdamW (or Lion) updates in a Muon run; null: min_lr")
          .at_least(0),
      null_real("adam_weight_decay",
                "weight decay of what AdamW (or Lion) updates in a Muon run; null: weight_decay")
          .at_least(0),
      null_real("start_weight_decay", "where weight_decay_incr_style starts; null: weight_decay")
          .at_least(0),
      null_real("end_weight_decay", "where weight_decay_incr_style ends; null: weight_decay")
          .at_least(0),
      text("muon_ns_impl", "standard", "implementation of Newton-Schulz").one_of({"standard"}),
      mapping("muon_matrix_layouts",
              "the logical matrices of fused weights and kernels: {regular expression over whole "
              "names: whole, gate_up, experts, convolution, {qkv: {q_heads: 8, kv_heads: 2, "
              "head_dim: 64, gate: False, interleaved: True, per_head: False}}, {heads: {head_dim: "
              "64}} or {rows: {blocks: [512, 128], per_group: False}}}"),
      null_real("muon_qk_clip_tau",
                "largest attention logit that a step leaves to a head (QK-clip); null: off")
          .above(0),
      mapping("routing_rules",
              "exceptions to the routing, tried in order: {regular expression over whole names: "
              "muon, or adam for the optimizer beside it}"),
  };
  for (Row& row : variant_rows()) rows.push_back(std::move(row));
  return rows;
}

// Megatron's OptimizerConfig, as far as we have it: the last word over the keys beside it.
Options override_keys() {
  Options keys;
  auto add = [&](Row row) { keys.push_back(std::move(row)); };
  add(real("lr", 0, "").above(0));
  add(real("min_lr", 0, "").at_least(0));
  add(real("weight_decay", 0, "").at_least(0));
  add(real("adam_beta1", 0, "").at_least(0).below(1));
  add(real("adam_beta2", 0, "").at_least(0).below(1));
  add(real("adam_eps", 0, "").above(0));
  add(real("clip_grad", 0, "").at_least(0));
  add(flag("decoupled_weight_decay", true, ""));
  add(real("lion_beta1", 0, "").at_least(0).below(1));
  add(real("lion_beta2", 0, "").at_least(0).below(1));
  add(only_flag("use_precision_aware_optimizer", false, kPrecisionAware));
  for (Row& row : muon_rows())
    if (row.path != "use_layer_wise_param_layout" && row.path != "muon_match_adamw_update_rms")
      keys.push_back(std::move(row));
  return keys;
}

}  // namespace

Options optim_options(const std::string& prefix, double lr) {
  std::vector<Row> rows = schedule_rows(lr);
  for (Row& row : muon_rows()) rows.push_back(std::move(row).for_optimizer("muon"));
  for (Row& row : our_rows()) {
    bool shared = row.path == "adam_eps" || row.path == "adam_decoupled_weight_decay" ||
                  row.path == "start_weight_decay" || row.path == "end_weight_decay";
    rows.push_back(std::move(row).added());
    if (!shared) rows.back().only_for = "muon";
  }
  rows.push_back(mapping("override_optimizer_config",
                         "Megatron's names (adam_beta1, ...), which win over the keys above")
                     .mapping_keys(override_keys()));
  rows.push_back(null_text("_target_", "verl's class of this file; nothing depends on it")
                     .one_of({"verl.workers.config.McoreOptimizerConfig"})
                     .why("this tree is verl's Megatron optimizer"));
  return under(prefix, std::move(rows));
}

Refusals optim_refusals(const std::string& prefix) {
  Refusals refusals =
      refuse(prefix, {"grad_clip"}, "it is deprecated in verl; set clip_grad instead");
  append(refusals, refuse(prefix,
                          {"optimizer_impl", "min_lr_ratio", "warmup_style", "lr_scheduler_type",
                           "num_cycles", "zero_indexed_step"},
                          "it belongs to verl's FSDP optimizer; this tree is its Megatron one "
                          "(optimizer, min_lr, lr_decay_style, ...)"));
  return refusals;
}

}  // namespace muoncore::train
