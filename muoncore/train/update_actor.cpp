#include "muoncore/train/update_actor.h"

#include <numeric>
#include <stdexcept>

#include "muoncore/core/rng.h"
#include "muoncore/rl/response_log_probs.h"
#include "muoncore/train/qk_clip.h"

namespace muoncore::train {
namespace {

// Sums over the micro-batches of one mini-batch.
struct MiniBatchSums {
  // Over all ranks.
  MiniBatchSums over(const Ranks& ranks) const;

  double loss = 0.0;
  double pg_loss = 0.0;
  double kl_loss = 0.0;
  double entropy_loss = 0.0;  // aggregated as the loss is
  double entropy = 0.0;       // plain sum over response tokens
  rl::PolicyMetrics policy;
};

MiniBatchSums MiniBatchSums::over(const Ranks& ranks) const {
  const std::vector<double> all =
      ranks.sum({loss, pg_loss, kl_loss, entropy_loss, entropy, policy.tokens, policy.clipped,
                 policy.clipped_lower, policy.negative_log_ratio},
                "losses of a mini-batch");
  return {.loss = all[0],
          .pg_loss = all[1],
          .kl_loss = all[2],
          .entropy_loss = all[3],
          .entropy = all[4],
          .policy = {.tokens = all[5],
                     .clipped = all[6],
                     .clipped_lower = all[7],
                     .negative_log_ratio = all[8]}};
}

std::vector<int64_t> row_order(int64_t rows, const UpdateSettings& settings, int64_t step,
                               int64_t epoch) {
  std::vector<int64_t> order(rows);
  std::iota(order.begin(), order.end(), 0);
  if (!settings.shuffle) return order;
  const CounterRng rng({settings.seed, hash_name("mini-batches"), static_cast<uint64_t>(step),
                        static_cast<uint64_t>(epoch)});
  for (int64_t i = rows - 1; i > 0; --i) {  // Fisher-Yates
    std::swap(order[i], order[rng.below(i, i + 1)]);
  }
  return order;
}

rl::LossDenominators denominators(const RolloutBatch& batch, const std::vector<int64_t>& rows,
                                  const UpdateSettings& settings) {
  rl::LossDenominators out;
  for (const int64_t row : rows) {
    out.global_tokens += static_cast<double>(batch.rollout.response_lengths[row]);
  }
  out.global_batch_size = static_cast<double>(rows.size());
  out.loss_scale_factor = settings.loss_scale_factor;
  return out;
}

at::Tensor advantages_of(const RolloutBatch& batch, const std::vector<int64_t>& rows,
                         const c10::Device& device) {
  std::vector<float> values;
  for (const int64_t row : rows) values.push_back(static_cast<float>(batch.advantages[row]));
  return torch::tensor(values, torch::kFloat).to(device);
}

bool measures_entropy(const UpdateSettings& settings) {
  return settings.calculate_entropy || settings.entropy_coeff != 0.0;
}

// The rows' log-probabilities to compare with: those of before the update, or, on policy, those of
// this very pass, which the batch then keeps.
at::Tensor old_log_probs(const at::Tensor& now, const std::vector<int64_t>& rows,
                         RolloutBatch& batch, at::Tensor& first_pass) {
  if (batch.old_log_probs.defined()) return take_rows(batch.old_log_probs, rows, now.size(1));
  const at::Tensor old = now.detach();
  first_pass.slice(1, 0, now.size(1))
      .index_copy_(0, torch::tensor(rows, torch::kInt64).to(now.device()), old.to(torch::kFloat));
  return old;
}

// What a micro-batch reads beside its rows, and where its results go.
struct MiniBatch {
  RolloutBatch& batch;
  const UpdateSettings& settings;
  rl::LossDenominators total;
  at::Tensor first_pass;  // [N, T], where batch.old_log_probs is undefined
  MiniBatchSums sums;
};

at::Tensor entropy_term(const at::Tensor& entropy, const at::Tensor& mask, MiniBatch& mini) {
  const at::Tensor mean =
      rl::aggregate_loss(entropy, mask, mini.settings.policy.loss_agg_mode, mini.total);
  mini.sums.entropy_loss += mean.item<double>();
  return mini.settings.entropy_coeff * mean;
}

at::Tensor kl_term(const at::Tensor& log_probs, const at::Tensor& mask,
                   const std::vector<int64_t>& rows, MiniBatch& mini) {
  const at::Tensor ref = take_rows(mini.batch.ref_log_probs, rows, mask.size(1));
  const at::Tensor kl =
      rl::aggregate_loss(rl::kl_penalty(log_probs, ref, mini.settings.kl_loss_type), mask,
                         mini.settings.policy.loss_agg_mode, mini.total);
  mini.sums.kl_loss += kl.item<double>();
  return mini.settings.kl_loss_coef * kl;
}

// Forward and backward of the rows; adds to the gradients and to the sums.
void micro_batch(Trainee& trainee, const std::vector<int64_t>& rows, int64_t width, bool last,
                 MiniBatch& mini) {
  const UpdateSettings& settings = mini.settings;
  const at::Tensor mask = take_rows(mini.batch.rollout.response_mask, rows, width);
  const auto pass =
      rl::response_log_probs(trainee.model, take_rows(mini.batch.rollout.ids, rows, width), mask,
                             settings.temperature, measures_entropy(settings));
  const at::Tensor old = old_log_probs(pass.log_probs, rows, mini.batch, mini.first_pass);
  const auto policy =
      rl::policy_loss(pass.log_probs, old, advantages_of(mini.batch, rows, mask.device()), mask,
                      settings.policy, mini.total);
  at::Tensor loss = policy.loss;
  mini.sums.pg_loss += policy.loss.item<double>();
  mini.sums.policy += policy.metrics;
  if (measures_entropy(settings)) {
    mini.sums.entropy += pass.entropy.detach().sum(torch::kDouble).item<double>();
  }
  if (settings.entropy_coeff != 0.0) loss = loss - entropy_term(pass.entropy, mask, mini);
  if (settings.use_kl_loss) loss = loss + kl_term(pass.log_probs, mask, rows, mini);
  mini.sums.loss += loss.item<double>();
  backward(trainee, loss, last);
}

bool without_gradient(const RolloutBatch& batch, const std::vector<int64_t>& rows,
                      const UpdateSettings& settings) {
  if (settings.use_kl_loss || settings.entropy_coeff != 0.0) return false;
  return std::all_of(rows.begin(), rows.end(),
                     [&](int64_t row) { return batch.advantages[row] == 0.0; });
}

void add_loss_metrics(const MiniBatchSums& sums, const rl::LossDenominators& total,
                      const UpdateSettings& settings, Metrics& metrics) {
  metrics["actor/loss"] = sums.loss;
  metrics["actor/pg_loss"] = sums.pg_loss;
  metrics["actor/pg_clipfrac"] = sums.policy.pg_clipfrac();
  metrics["actor/pg_clipfrac_lower"] = sums.policy.pg_clipfrac_lower();
  metrics["actor/ppo_kl"] = sums.policy.ppo_kl();
  if (measures_entropy(settings)) metrics["actor/entropy"] = sums.entropy / total.global_tokens;
  if (settings.entropy_coeff != 0.0) metrics["actor/entropy_loss"] = sums.entropy_loss;
  if (settings.use_kl_loss) {
    metrics["actor/kl_loss"] = sums.kl_loss;
    metrics["actor/kl_coef"] = settings.kl_loss_coef;
  }
}

// The losses of a mini-batch that has no gradient are zero; its entropy was not computed.
Metrics skipped_mini_batch() {
  return {{"actor/loss", 0.0},
          {"actor/pg_loss", 0.0},
          {"actor/grad_norm", 0.0},
          {"actor/optim/step_skipped", 1.0},
          {"actor/optim/nonfinite", 0.0},
          {"actor/optim/ns_calls", 0.0}};
}

// All rows' log-probabilities, of which this rank computed those of `own`; `rows` in the order of
// the ranks' shares.
void gather_first_pass(const at::Tensor& first_pass, const std::vector<int64_t>& own,
                       const std::vector<int64_t>& rows, const Ranks& ranks) {
  if (ranks.size() == 1) return;
  const at::Tensor all =
      ranks.gather(take_rows(first_pass, own, first_pass.size(1)),
                   static_cast<int64_t>(rows.size()), "log-probabilities of the first pass");
  first_pass.index_copy_(0, torch::tensor(rows, torch::kInt64).to(all.device()), all);
}

Metrics mini_batch(Trainee& trainee, RolloutBatch& batch, const std::vector<int64_t>& rows,
                   const UpdateSettings& settings, PhaseRecorder& recorder) {
  if (without_gradient(batch, rows, settings)) return skipped_mini_batch();
  const Share share = trainee.ranks.share(static_cast<int64_t>(rows.size()));
  const std::vector<int64_t> own(rows.begin() + share.begin, rows.begin() + share.end);
  const std::vector<int64_t> all_lengths = batch.lengths();
  std::vector<int64_t> lengths;
  for (const int64_t row : own) lengths.push_back(all_lengths[row]);

  MiniBatch mini{batch, settings, denominators(batch, rows, settings), {}, {}};
  if (!batch.old_log_probs.defined()) {
    mini.first_pass = torch::zeros_like(batch.rollout.log_probs, torch::kFloat);
  }
  QkClip qk_clip(trainee);
  trainee.optimizer.zero_grad();
  wait_params(trainee);
  auto parts = split_rows(lengths, settings.micro_batch_rows);
  for (auto& part : parts) {
    const int64_t width = longest(lengths, part);
    qk_clip.expect_rows(lengths, part);
    for (int64_t& row : part) row = own[row];
    micro_batch(trainee, part, width, &part == &parts.back(), mini);
  }
  if (mini.first_pass.defined()) {
    gather_first_pass(mini.first_pass, own, rows, trainee.ranks);
    batch.old_log_probs = mini.first_pass;
  }
  Metrics metrics;
  add_loss_metrics(mini.sums.over(trainee.ranks), mini.total, settings, metrics);
  const auto phase = recorder.phase("optimizer_step");
  const optim::StepResult step = trainee.optimizer.step();
  add_step_metrics(step, "actor/", metrics);
  qk_clip.after_step(step, "actor/", metrics);
  return metrics;
}

}  // namespace

Trainee trainee_of(models::CausalLM& model, OptimizerSetup& setup, const Ranks& ranks) {
  return {model, *setup.wrapped.optimizer, *setup.scheduler,
          ranks, setup.qk_clip_tau,        setup.wrapped.schedule.get()};
}

void backward(const Trainee& trainee, const at::Tensor& loss, bool last) {
  std::optional<parallel::NoSync> no_sync;
  if (trainee.schedule != nullptr && !last) no_sync.emplace(*trainee.schedule);
  loss.backward();
}

void wait_params(const Trainee& trainee) {
  if (trainee.schedule != nullptr) trainee.schedule->wait_params();
}

void add_step_metrics(const optim::StepResult& result, const std::string& prefix,
                      Metrics& metrics) {
  metrics[prefix + "grad_norm"] = result.grad_norm;
  metrics[prefix + "optim/ns_calls"] = static_cast<double>(result.ns_calls);
  metrics[prefix + "optim/step_skipped"] = result.skipped ? 1.0 : 0.0;
  metrics[prefix + "optim/nonfinite"] = result.skipped ? 1.0 : 0.0;
  metrics[prefix + "optim/clip_coefficient"] = result.clip_coefficient;
  for (const auto& [name, rms] : result.update_rms) {
    metrics[prefix + "optim/update_rms/" + name] = rms;
  }
  if (result.extra_scale_factor)
    metrics[prefix + "optim/extra_scale_factor"] = *result.extra_scale_factor;
}

Metrics update_actor(Trainee& trainee, RolloutBatch& batch, const UpdateSettings& settings,
                     int64_t step, PhaseRecorder& recorder) {
  const bool on_policy = settings.ppo_epochs == 1 && settings.mini_batch_rows == batch.rows();
  if (!batch.old_log_probs.defined() && !on_policy) {
    throw std::logic_error("update_actor: old log-probabilities are needed for a second update");
  }
  if (batch.rows() % settings.mini_batch_rows != 0) {
    throw std::logic_error("update_actor: the batch is no multiple of the mini-batch");
  }
  const auto phase = recorder.phase("update_actor");
  const double lr = trainee.scheduler.lr();
  MetricMerger merger;
  for (int64_t epoch = 0; epoch < settings.ppo_epochs; ++epoch) {
    const std::vector<int64_t> order = row_order(batch.rows(), settings, step, epoch);
    for (auto at = order.begin(); at != order.end(); at += settings.mini_batch_rows) {
      merger.add(
          mini_batch(trainee, batch, {at, at + settings.mini_batch_rows}, settings, recorder));
    }
  }
  trainee.scheduler.step();
  trainee.optimizer.zero_grad();
  Metrics metrics = merger.merged();
  metrics["actor/lr"] = lr;
  metrics["actor/optim/state_bytes"] = static_cast<double>(trainee.optimizer.state_bytes());
  return metrics;
}

}  // namespace muoncore::train
