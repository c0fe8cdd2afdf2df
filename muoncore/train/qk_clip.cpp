#include "muoncore/train/qk_clip.h"

#include <utility>

namespace muoncore::train {

QkClip::QkClip(Trainee& trainee) : trainee_(trainee) {
  if (trainee_.qk_clip_tau) watch_.emplace(trainee_.model);
}

void QkClip::expect_rows(const std::vector<int64_t>& lengths, const std::vector<int64_t>& rows) {
  if (!watch_) return;
  std::vector<int64_t> predicting;
  for (const int64_t row : rows) predicting.push_back(lengths[row] - 1);
  watch_->set_lengths(std::move(predicting));
}

void QkClip::after_step(const optim::StepResult& result, const std::string& prefix,
                        Metrics& metrics) {
  if (!watch_ || result.skipped) return;
  const at::Tensor largest = trainee_.ranks.max(watch_->largest(), "largest attention logits");
  const auto clip = models::apply_qk_clip(trainee_.model.config(), largest, *trainee_.qk_clip_tau,
                                          [&](const std::string& name, const at::Tensor& factors) {
                                            trainee_.optimizer.scale_rows(name, factors);
                                          });
  metrics[prefix + "optim/max_attention_logit"] = clip.largest_logit;
  metrics[prefix + "optim/qk_clipped_heads"] = static_cast<double>(clip.clipped_heads);
}

}  // namespace muoncore::train
