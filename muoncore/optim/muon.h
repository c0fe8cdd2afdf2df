// Muon as a real torch optimizer. For each matrix:
//   p <- decay(p);  M <- lerp(M, g, 1 - momentum);  U = nesterov ? lerp(g, M, momentum) : M
//   O = second_moment(post(newton_schulz(pre(U))))
//   p <- p - lr * extra_scale_factor * scale(rows, cols) * O
// Each stage is a file of muon/, with its variants and their sources. The order is that of
// Emerging-Optimizers 0.3.0 (OrthogonalizedOptimizer, AdaptiveMuon, MuonHyperball) and
// Megatron-Core 0.19.2 (TensorParallelMuon).
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "muoncore/core/param_spec.h"
#include "muoncore/muon/orthogonalize.h"
#include "muoncore/optim/managed_optimizer.h"

namespace muoncore::optim {

// Defaults: Megatron's and verl's. Words and numbers are checked when a group is added and again at
// each step.
struct MuonOptions : public torch::optim::OptimizerCloneableOptions<MuonOptions> {
  using betas_t = std::tuple<double, double>;
  MuonOptions(double lr = 3e-4);  // NOLINT(google-explicit-constructor): as torch's own options
  TORCH_ARG(double, lr) = 3e-4;
  TORCH_ARG(double, momentum) = 0.95;             // in [0, 1)
  TORCH_ARG(std::string, momentum_kind) = "ema";  // ema, classical
  TORCH_ARG(bool, nesterov) = false;
  TORCH_ARG(double, weight_decay) = 0.01;
  // none, decoupled, independent, palm, l2, cautious
  TORCH_ARG(std::string, weight_decay_method) = "decoupled";
  // A name of muon/coefficients.h, or custom; then a, b, c of each step.
  TORCH_ARG(std::string, coefficient_type) = "quintic";
  TORCH_ARG(std::vector<double>, custom_coefficients) = {};
  TORCH_ARG(std::string, custom_iteration_mode) = "cycle";  // or repeat_last
  TORCH_ARG(int64_t, num_ns_steps) = 5;
  TORCH_ARG(std::string, fp32_matmul_prec) = "medium";  // highest, high: fp32; medium: bf16
  TORCH_ARG(std::string, scale_mode) = "spectral";      // muon/scale_mode.h
  TORCH_ARG(double, extra_scale_factor) = 1.0;          // > 0
  TORCH_ARG(std::string, pre_transform) = "none";       // muon/pre_transform.h
  TORCH_ARG(std::string, post_transform) = "none";      // muon/post_transform.h
  TORCH_ARG(std::string, moment2_method) = "none";      // muon/second_moment.h
  TORCH_ARG(double, beta2) = 0.95;                      // of the second moment, in [0, 1)
  TORCH_ARG(double, moment2_eps) = 1e-8;                // > 0
  // muon/hyperball.h; sets the size of an update in place of scale_mode and extra_scale_factor.
  TORCH_ARG(bool, hyperball) = false;
  // Every matrix' update, after its second moment, to an RMS of 1 in place of scale_mode: the last
  // step of AdaMuon (arXiv 2507.11005) and NorMuon (arXiv 2510.05491), there with an extra factor
  // of 0.2.
  TORCH_ARG(bool, align_update_rms) = false;
  // none, or a factor that follows AdamW's update RMS beside extra_scale_factor (rms_match.h):
  // bias_corrected, measured. match_betas and match_eps are that AdamW's.
  TORCH_ARG(std::string, adamw_match) = "none";
  TORCH_ARG(betas_t, match_betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, match_eps) = 1e-8;
  // bf16 parameters (all must be, and have a name) are rounded by muon/rounding.h, keyed by (seed,
  // step of the parameter, its name), not to the nearest.
  TORCH_ARG(bool, stochastic_rounding) = false;
  TORCH_ARG(int64_t, seed) = 0;
  // Absent: scale-free normalization; else upstream's x / max(norm, ns_eps).
  TORCH_ARG(std::optional<double>, ns_eps) = std::nullopt;
  // Upstream's coefficient sets without safety factor or guard.
  TORCH_ARG(bool, upstream_exact) = false;

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
  double get_lr() const override;
  void set_lr(const double lr) override;
};

// Throws Error for a value that Muon cannot work with, and for two that contradict each other.
void check_options(const MuonOptions& options);

// What Muon's state of a whole parameter holds after a step, in bytes as state_bytes counts them,
// in fp32 (bf16 and fp32 parameters); before any tensor exists. For plans of memory.
int64_t planned_state_bytes(const MuonOptions& options, const ParamSpec& spec);

struct MuonParamState : public torch::optim::OptimizerCloneableParamState<MuonParamState> {
  TORCH_ARG(torch::Tensor, momentum_buffer);  // param's shape; fp32 (fp64 for fp64 parameters)
  // Undefined without a second moment; else flat: the v of each logical matrix
  // (muon/second_moment.h), one after another.
  TORCH_ARG(torch::Tensor, second_moment);
  // Undefined without hyperball; else flat, fp64: the norm that each logical matrix started with.
  TORCH_ARG(torch::Tensor, radius);
  // Undefined where nothing depends on it; else an fp32 scalar, the number of steps taken.
  TORCH_ARG(torch::Tensor, step);
  // Undefined but under adamw_match measured: AdamWShadow's (rms_match.h).
  TORCH_ARG(torch::Tensor, shadow_exp_avg);
  TORCH_ARG(torch::Tensor, shadow_exp_avg_sq);

 public:
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;
};

// One logical matrix of a parameter, or a batch of equal ones, on its way to its update.
struct MuonPart {
  at::Tensor direction;   // [rows, cols] or [batch, rows, cols], fp32 or fp64; read only
  const ParamSpec* spec;  // of its parameter; a default one where set_spec was not called
};

// Rows and columns of a logical matrix.
struct MatrixShape {
  int64_t rows, cols;
};

// Parameters: [rows, cols], or [batch, rows, cols] where every slice is a matrix of its own, or any
// shape of two dimensions or more whose spec says `flatten` (a convolution's kernel); fp32, fp64,
// bf16 or fp16 (the last two are computed in fp32 and rounded once per step). Others throw when
// they are added. A parameter without a gradient is skipped: no decay, no momentum. Gradients are
// read, never written.
class Muon : public ManagedOptimizer {
 public:
  // A group's options are taken as they are given; a group without options takes the defaults.
  explicit Muon(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                MuonOptions defaults = {});
  explicit Muon(std::vector<torch::Tensor> params, MuonOptions defaults = {});

  // As torch's, but the options of the group stay as they are given. `specs`: none, or one per
  // parameter, as set_spec takes them (a kernel must be declared here). Throws, and adds nothing,
  // on bad options, parameters or specs.
  void add_param_group(const torch::optim::OptimizerParamGroup& param_group,
                       const std::vector<ParamSpec>& specs = {});

  // Declares the logical matrices of one parameter (spec.blocks, spec.flatten) and its name for
  // messages. Without it a parameter is one matrix (one per slice). Throws when the blocks do not
  // fit the parameter or the parameter is not of this optimizer.
  void set_spec(const torch::Tensor& param, const ParamSpec& spec);

  void step_with(const StepArgs& args) override;
  bool observes() const override;  // under adamw_match measured
  SquareSum observe(const StepArgs& args) override;
  int64_t state_bytes() const override;

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;  // momentum of another dtype is cast

  // "momentum_buffer" and, where the parameter's options ask for them, "second_moment", "radius",
  // "step", "shadow_exp_avg", "shadow_exp_avg_sq". What is set must hold just these.
  ParamState param_state(const at::Tensor& param) const override;
  void set_param_state(const at::Tensor& param, const ParamState& state) override;
  double weight_decay(size_t group) const override;
  void set_weight_decay(size_t group, double weight_decay) override;

 protected:
  // What an optimizer over shards of matrices does otherwise. There a parameter, and each part, is
  // this rank's shard of spec->shape along spec->partition_dim (-1: whole), the counts of blocks
  // hold for the shard's rows, and all ranks of the group see the same parts in the same order.

  // The orthogonalized update of every part, in order, as a new tensor of its direction's shape and
  // dtype. Many parts of one parameter group come in one call (equal small ones are worth a batch);
  // never none. Here: orthogonalize_directions on the parts as they are. Local.
  virtual std::vector<at::Tensor> orthogonalize(const std::vector<MuonPart>& parts,
                                                const muon::OrthogonalizeOptions& options);

  // The matrix that the scale mode sees. Here: the part's own rows and columns.
  virtual MatrixShape scale_shape(const MuonPart& part) const;

  // Called at the start of a step with the options of each group that is stepped, before anything
  // is touched: throws for what orthogonalize and scale_shape cannot make right. Here: nothing.
  virtual void check_supported(const MuonOptions& options) const;

  // How many elements of parameters (at least) come in one call of orthogonalize, the last one left
  // out. Here: enough that equal small matrices meet in one batch, few enough to keep the memory of
  // a step small.
  virtual int64_t elements_per_call() const;

  // Whether other ranks take part in a parameter's update. Those parameters come in calls of
  // orthogonalize of their own, so that the calls do not depend on what else a rank holds. Here:
  // none.
  virtual bool is_shared(const ParamSpec& spec) const;

  // As set_spec took it; a default one where it was not called.
  const ParamSpec& spec_of(const at::Tensor& param) const;

 private:
  struct GroupStep;

  MuonParamState& state_of(const at::Tensor& param);
  const MuonOptions& options_for(const at::Tensor& param) const;
  void check_step() const;
  void apply_pending(GroupStep& step);
  void step_group(size_t index, const StepArgs& args, const std::optional<SquareSum>& observed);

  std::unordered_map<void*, ParamSpec> specs_;  // by TensorImpl
};

}  // namespace muoncore::optim
