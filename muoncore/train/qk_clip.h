// QK-clip around one optimizer step (models/qk_clip.h), where a run has muon_qk_clip_tau.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muoncore/models/qk_clip.h"
#include "muoncore/train/metrics.h"
#include "muoncore/train/update_actor.h"

namespace muoncore::train {

// Stands around the forwards of one step and the step itself. Where trainee.qk_clip_tau is not set
// it does nothing.
class QkClip {
 public:
  explicit QkClip(Trainee& trainee);

  // Before the forward of these rows: only their tokens that predict another one count, so that
  // neither padding nor the cut into micro-batches is seen.
  void expect_rows(const std::vector<int64_t>& lengths, const std::vector<int64_t>& rows);

  // Behind the step: clips the heads whose logits, in the forwards of this step, went beyond tau,
  // in the masters too. A skipped step clips nothing. Adds optim/max_attention_logit (before the
  // clip) and optim/qk_clipped_heads, each after `prefix`.
  void after_step(const optim::StepResult& result, const std::string& prefix, Metrics& metrics);

 private:
  Trainee& trainee_;
  std::optional<models::LogitWatch> watch_;
};

}  // namespace muoncore::train
