#include "muoncore/rl/log_probs.h"

#include <torch/csrc/autograd/custom_function.h>

#include <fmt/ranges.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::rl {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kChunkElements = int64_t{1} << 20;  // logits held as a temporary at a time
constexpr double kLowest = -1e30;  // stands for log 0 where it is multiplied by a probability of 0

int64_t rows_per_chunk(const at::Tensor& logits) {
  return std::max<int64_t>(1, kChunkElements / std::max<int64_t>(1, logits.size(1)));
}

at::ScalarType work_type(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// logits [R, V] -> their logsumexp at the temperature, the log-probability of ids [R] and the
// entropy, each [R].
struct Rows {
  at::Tensor logsumexp, log_probs, entropy;
};

Rows forward_rows(const at::Tensor& logits, const at::Tensor& ids, double temperature,
                  bool with_entropy) {
  int64_t rows = logits.size(0), step = rows_per_chunk(logits);
  auto options = logits.options().dtype(work_type(logits));
  Rows out{at::empty({rows}, options), at::empty({rows}, options),
           with_entropy ? at::empty({rows}, options) : at::Tensor()};
  for (int64_t start = 0; start < rows; start += step) {
    int64_t n = std::min(step, rows - start);
    at::Tensor z = logits.narrow(0, start, n).to(options.dtype());
    at::Tensor largest = z.amax(-1, /*keepdim=*/true);
    z = z.sub(largest).div_(temperature);
    at::Tensor e = z.exp();
    at::Tensor total = e.sum(-1);
    at::Tensor log_total = total.log();
    out.logsumexp.narrow(0, start, n).copy_(log_total + largest.squeeze(-1) / temperature);
    at::Tensor picked = z.gather(1, ids.narrow(0, start, n).unsqueeze(1)).squeeze(1);
    out.log_probs.narrow(0, start, n).copy_(picked - log_total);
    if (with_entropy)
      out.entropy.narrow(0, start, n)
          .copy_(log_total - e.mul_(z.clamp_min_(kLowest)).sum(-1) / total);
  }
  return out;
}

// d log p_id / dz_j = [j = id] - p_j,   dH / dz_j = -p_j (log p_j + H),   z = logits / temperature.
at::Tensor backward_rows(const at::Tensor& logits, const at::Tensor& ids, const Rows& saved,
                         const at::Tensor& grad_log_probs, const at::Tensor& grad_entropy,
                         double temperature) {
  int64_t rows = logits.size(0), step = rows_per_chunk(logits);
  at::Tensor grad = at::empty(logits.sizes(), logits.options());
  for (int64_t start = 0; start < rows; start += step) {
    int64_t n = std::min(step, rows - start);
    auto part = [&](const at::Tensor& x) { return x.narrow(0, start, n).unsqueeze(1); };
    at::Tensor log_p = (logits.narrow(0, start, n).to(work_type(logits)) / temperature)
                           .sub_(part(saved.logsumexp));
    at::Tensor g = log_p.exp();
    if (saved.entropy.defined()) {
      log_p.clamp_min_(kLowest).add_(part(saved.entropy)).mul_(part(grad_entropy));
      g.mul_(log_p.add_(part(grad_log_probs))).neg_();
    } else {
      g.mul_(part(grad_log_probs)).neg_();
    }
    g.scatter_add_(1, part(ids), part(grad_log_probs));
    grad.narrow(0, start, n).copy_(g.div_(temperature));
  }
  return grad;
}

class LogProbFunction : public torch::autograd::Function<LogProbFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& logits,
                               const at::Tensor& ids, double temperature, bool with_entropy) {
    Rows rows = forward_rows(logits, ids, temperature, with_entropy);
    ctx->save_for_backward({logits, ids, rows.logsumexp, rows.entropy});
    ctx->saved_data["temperature"] = temperature;
    if (!with_entropy) return {rows.log_probs};
    return {rows.log_probs, rows.entropy};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list saved = ctx->get_saved_variables();
    at::Tensor grad = backward_rows(saved[0], saved[1], {saved[2], {}, saved[3]}, grads[0],
                                    grads.size() > 1 ? grads[1] : at::Tensor(),
                                    ctx->saved_data["temperature"].toDouble());
    return {grad, {}, {}, {}};
  }
};

void check_inputs(const at::Tensor& logits, const at::Tensor& ids, double temperature) {
  check(logits.dim() >= 1 && logits.sizes().slice(0, logits.dim() - 1) == ids.sizes(),
        "logits of shape {} came with ids of shape {}: [..., vocabulary] goes with [...]",
        fmt::join(logits.sizes(), "x"), fmt::join(ids.sizes(), "x"));
  check(temperature > 0.0, "the temperature of log-probabilities is {}: it must be positive",
        temperature);
  if (ids.numel() == 0) return;
  auto [low, high] = at::aminmax(ids);
  int64_t least = low.item<int64_t>(), most = high.item<int64_t>();
  check(least >= 0 && most < logits.size(-1),
        "token ids run from {} to {}, but the logits have a vocabulary of {}", least, most,
        logits.size(-1));
}

}  // namespace

TokenLogProbs token_log_probs(const at::Tensor& logits, const at::Tensor& ids, double temperature,
                              bool with_entropy) {
  check_inputs(logits, ids, temperature);
  int64_t vocabulary = logits.size(-1);
  variable_list out = LogProbFunction::apply(logits.reshape({ids.numel(), vocabulary}),
                                             ids.reshape({-1}), temperature, with_entropy);
  return {out[0].view(ids.sizes()), with_entropy ? out[1].view(ids.sizes()) : at::Tensor()};
}

}  // namespace muoncore::rl
