// One update of the actor on a batch of rollouts: ppo_epochs x mini-batches x micro-batches.
// Source of the structure: verl 0.9.1, TrainingWorker.train_mini_batch (reference/verl.md 3.2).
#pragma once

#include <cstdint>
#include <optional>

#include "muoncore/models/causal_lm.h"
#include "muoncore/optim/chained.h"
#include "muoncore/optim/param_scheduler.h"
#include "muoncore/parallel/distributed_data_parallel.h"
#include "muoncore/rl/kl_penalty.h"
#include "muoncore/rl/policy_loss.h"
#include "muoncore/train/metrics.h"
#include "muoncore/train/micro_batches.h"
#include "muoncore/train/phases.h"
#include "muoncore/train/ranks.h"
#include "muoncore/train/rollout_batch.h"
#include "muoncore/train/setup.h"

namespace muoncore::train {

struct UpdateSettings {
  int64_t mini_batch_rows = 1;  // ppo_mini_batch_size (prompts) x rollout.n; divides the batch
  int64_t ppo_epochs = 1;
  bool shuffle = false;  // mini-batches of rows in an order keyed by (seed, step, epoch)
  uint64_t seed = 42;    // data_loader_seed
  std::optional<int64_t> micro_batch_rows;  // none: the mini-batch at once
  rl::PolicyLossOptions policy;
  double entropy_coeff = 0.0;
  bool calculate_entropy = false;  // measure it without a bonus too
  bool use_kl_loss = false;
  double kl_loss_coef = 0.001;
  rl::KlPenalty kl_loss_type;
  double temperature = 1.0;        // that of the sampling
  double loss_scale_factor = 0.0;  // seq-mean-token-sum-norm; verl: max_response_length
};

// What an update changes, and the ranks that make it together: each does its share of a mini-batch,
// and gradients are summed over all.
struct Trainee {
  models::CausalLM& model;
  optim::ChainedOptimizer& optimizer;
  optim::OptimizerParamScheduler& scheduler;
  const Ranks& ranks;
  std::optional<double> qk_clip_tau = std::nullopt;  // muon_qk_clip_tau
  parallel::BucketSchedule* schedule = nullptr;      // where there are buffers: their buckets
};

Trainee trainee_of(models::CausalLM& model, OptimizerSetup& setup, const Ranks& ranks);

// Adds the gradients of one micro-batch. `last` of this rank's in a step: then buckets may leave.
void backward(const Trainee& trainee, const at::Tensor& loss, bool last);

// Before a step's first forward pass: waits until all parameters are here.
void wait_params(const Trainee& trainee);

// The batch is the whole one, on every rank. Every micro-batch divides by the numbers of its whole
// mini-batch, so the gradient does not depend on how it is cut, between ranks or within them. Where
// batch.old_log_probs is undefined, each pass's own detached log-probabilities stand for them, and
// are kept in the batch: exact when there is one mini-batch and one epoch (verl makes a second
// forward pass for the same numbers), and refused (std::logic_error) otherwise. A mini-batch whose
// advantages are all zero, with KL loss and entropy off, has no gradient: its optimizer step is
// skipped, since a Muon step on stale momentum would be of full size. The scheduler steps once, in
// any case.
//
// Metrics (means over mini-batches): actor/loss, pg_loss, pg_clipfrac, pg_clipfrac_lower, ppo_kl,
// entropy (where asked; entropy_loss with a bonus), kl_loss, kl_coef, grad_norm (before clipping),
// lr (used in this update), optim/{ns_calls, step_skipped, nonfinite, clip_coefficient},
// optim/update_rms/<name>, optim/state_bytes, and those of qk_clip.h. A skipped mini-batch has
// losses and norm of zero, and no other of these. Phases: update_actor, and optimizer_step within
// it.
Metrics update_actor(Trainee& trainee, RolloutBatch& batch, const UpdateSettings& settings,
                     int64_t step, PhaseRecorder& recorder);

// grad_norm, optim/ns_calls, optim/step_skipped, ... of one optimizer step, each after `prefix`.
void add_step_metrics(const optim::StepResult& result, const std::string& prefix, Metrics& metrics);

}  // namespace muoncore::train
