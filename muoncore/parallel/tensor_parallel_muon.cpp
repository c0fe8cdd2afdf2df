#include "muoncore/parallel/tensor_parallel_muon.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"
#include "muoncore/parallel/tensor_parallel_orthogonalize.h"

namespace muoncore::parallel {
namespace {

// What every rank must have said alike of one parameter.
std::string description(const at::Tensor& param, const ParamSpec& spec) {
  return fmt::format("{} [{}] {} of [{}], cut {}, blocks [{}]{}", spec.name,
                     fmt::join(param.sizes().vec(), ","), at::toString(param.scalar_type()),
                     fmt::join(spec.shape, ","), spec.partition_dim,
                     fmt::join(spec.blocks.rows, ","), spec.blocks.per_group ? " each" : "");
}

// Which values are the same on every rank: the maxima of x and of -x then cancel. One all_reduce.
std::vector<bool> ranks_agree(const std::vector<int64_t>& values, comm::Group& group) {
  const auto count = static_cast<int64_t>(values.size());
  at::Tensor both = at::empty({2 * count}, at::kLong);
  int64_t* x = both.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    x[i] = values[static_cast<size_t>(i)];
    x[count + i] = -x[i];
  }
  group.all_reduce(both, comm::ReduceOp::kMax, "agreement on a step of Muon")->wait();
  std::vector<bool> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(x[i] == -x[count + i]);
  return out;
}

}  // namespace

TensorParallelMuon::TensorParallelMuon(
    comm::Group& tp, TensorParallelOptions options,
    const std::vector<torch::optim::OptimizerParamGroup>& param_groups, optim::MuonOptions defaults)
    : Muon(param_groups, std::move(defaults)), tp_(tp), options_(options) {}

bool TensorParallelMuon::is_shared(const ParamSpec& spec) const {
  return tp_.size() > 1 && cut_of(spec) != Cut::kWhole;
}

void TensorParallelMuon::step_with(const optim::StepArgs& args) {
  bool any = false;
  for (const auto& group : param_groups_)
    for (const at::Tensor& param : group.params())
      any = any || (param.grad().defined() && is_shared(spec_of(param)));
  if (any) {
    check_shards();
    check_agreement(args);
  }
  Muon::step_with(args);
}

void TensorParallelMuon::check_shards() const {
  for (const auto& group : param_groups_)
    for (const at::Tensor& param : group.params()) {
      const ParamSpec& spec = spec_of(param);
      if (cut_of(spec) == Cut::kWhole) continue;
      std::vector<int64_t> shape = param.sizes().vec();
      shape.at(static_cast<size_t>(spec.partition_dim)) *= tp_.size();
      check(shape == spec.shape,
            "{}: a shard of shape [{}], cut along dimension {} over {} ranks, is not one of a "
            "matrix of shape [{}]",
            spec.name, fmt::join(param.sizes().vec(), ", "), spec.partition_dim, tp_.size(),
            fmt::join(spec.shape, ", "));
    }
}

void TensorParallelMuon::check_agreement(const optim::StepArgs& args) {
  std::string all = fmt::format("{} {}", to_string(options_.mode), args.grad_scale);
  std::vector<int64_t> has_gradient;
  std::vector<std::string> names;
  for (size_t i = 0; i < param_groups_.size(); ++i) {
    const auto& group = param_groups_[i];
    all += fmt::format("; lr {} decay {}", group.options().get_lr(), weight_decay(i));
    for (const at::Tensor& param : group.params()) {
      const ParamSpec& spec = spec_of(param);
      if (!is_shared(spec)) continue;
      all += "; " + description(param, spec);
      has_gradient.push_back(param.grad().defined() ? 1 : 0);
      names.push_back(spec.name);
    }
  }
  // Alone and first: only then are the flags as many on every rank.
  check(ranks_agree({static_cast<int64_t>(hash_name(all) >> 1)}, tp_)[0],
        "the ranks of group {} disagree about the cut parameters of their Muon, their "
        "specifications, learning rates or the scale of the gradients: all must add the same ones "
        "in the same order and be told the same",
        tp_.name());
  const std::vector<bool> agree = ranks_agree(has_gradient, tp_);
  for (size_t i = 0; i < agree.size(); ++i)
    check(agree[i],
          "{}: some ranks of group {} have a gradient of it and some have none: all or none must",
          names[i], tp_.name());
}

void TensorParallelMuon::check_supported(const optim::MuonOptions& options) const {
  if (tp_.size() == 1 || options_.mode == TpMode::kBlockwise) return;
  std::string what;
  if (options.moment2_method() == "normuon" || options.moment2_method() == "namo")
    what = fmt::format("moment2_method {} needs norms of whole matrices", options.moment2_method());
  if (options.hyperball()) what = "hyperball needs norms of whole matrices";
  if (options.align_update_rms()) what = "align_update_rms needs norms of whole matrices";
  if (options.adamw_match() == "measured")
    what = "adamw_match measured counts every element of the model once";
  if (options.stochastic_rounding())
    what = "stochastic_rounding draws by the place of an element in the whole matrix";
  if (options_.mode == TpMode::kDistributed &&
      (options.pre_transform() != "none" || options.post_transform() != "none"))
    what = fmt::format(
        "muon_tp_mode distributed has no transforms (pre_transform {}, post_transform {}; "
        "duplicated and layer_sharded have)",
        options.pre_transform(), options.post_transform());
  if (what.empty()) return;
  for (const auto& group : param_groups_)
    for (const at::Tensor& param : group.params())
      check(!is_shared(spec_of(param)), "{}: cut over {} tensor-parallel ranks, but {}",
            spec_of(param).name, tp_.size(), what);
}

int64_t TensorParallelMuon::elements_per_call() const {
  // Enough matrices of any size to be shared out evenly; about 1 GiB of buffers in fp32.
  return options_.mode == TpMode::kLayerSharded ? int64_t{1} << 26 : Muon::elements_per_call();
}

optim::MatrixShape TensorParallelMuon::scale_shape(const optim::MuonPart& part) const {
  optim::MatrixShape shape = Muon::scale_shape(part);
  if (!is_shared(*part.spec)) return shape;
  if (options_.mode == TpMode::kBlockwise && options_.upstream) return shape;
  (cut_of(*part.spec) == Cut::kRows ? shape.rows : shape.cols) *= tp_.size();
  return shape;
}

std::vector<at::Tensor> TensorParallelMuon::orthogonalize(
    const std::vector<optim::MuonPart>& parts, const muon::OrthogonalizeOptions& options) {
  std::vector<at::Tensor> out(parts.size());
  // Parts that are whole here, and the shares of each dtype, which travel in one message.
  std::vector<optim::MuonPart> whole;
  std::vector<size_t> whole_at;
  struct Shares {
    std::vector<Share> shares;
    std::vector<size_t> at;
  };
  std::map<at::ScalarType, Shares> cut;
  for (size_t k = 0; k < parts.size(); ++k) {
    const optim::MuonPart& part = parts[k];
    if (options_.mode == TpMode::kBlockwise || !is_shared(*part.spec)) {
      whole.push_back(part);
      whole_at.push_back(k);
    } else {
      Shares& shares = cut[part.direction.scalar_type()];
      shares.shares.push_back({part.direction, cut_of(*part.spec)});
      shares.at.push_back(k);
    }
  }
  auto put = [&out](std::vector<at::Tensor> results, const std::vector<size_t>& at) {
    for (size_t k = 0; k < at.size(); ++k) out[at[k]] = std::move(results[k]);
  };
  if (!whole.empty()) put(Muon::orthogonalize(whole, options), whole_at);
  for (const auto& [dtype, shares] : cut) {
    if (options_.mode == TpMode::kDuplicated)
      put(orthogonalize_duplicated(shares.shares, options, tp_), shares.at);
    else if (options_.mode == TpMode::kLayerSharded)
      put(orthogonalize_layer_sharded(shares.shares, options, tp_), shares.at);
    else
      put(orthogonalize_distributed(shares.shares, options, tp_, !options_.upstream), shares.at);
  }
  return out;
}

}  // namespace muoncore::parallel
