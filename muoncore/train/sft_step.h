// One optimizer step of supervised fine-tuning, and the loss on held-out examples.
#pragma once

#include <cstdint>
#include <optional>

#include "muoncore/data/batch.h"
#include "muoncore/data/sft_data.h"
#include "muoncore/train/metrics.h"
#include "muoncore/train/micro_batches.h"
#include "muoncore/train/phases.h"
#include "muoncore/train/update_actor.h"

namespace muoncore::train {

// batch: this rank's share. loss = -sum(log p(target)) / target tokens of the whole batch, of all
// ranks (source: verl's sft_loss), so it and its gradient do not depend on how the batch is cut
// into shares and micro-batches. Steps optimizer and scheduler. Metrics: train/{loss, grad_norm,
// lr, global_tokens}, train/optim/*. Phases: update and optimizer_step within it.
Metrics sft_update(Trainee& trainee, const data::Batch& batch, std::optional<int64_t> micro_rows,
                   PhaseRecorder& recorder);

// Mean loss per target token over one epoch of `data`, without gradients; each rank takes its share
// of the examples.
double sft_loss(models::CausalLM& model, const data::SftData& data, int64_t batch_size,
                int64_t padding_id, std::optional<int64_t> micro_rows, const Ranks& ranks);

}  // namespace muoncore::train
