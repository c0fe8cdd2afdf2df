#include "muoncore/train/sft_step.h"

#include <algorithm>

#include "muoncore/rl/response_log_probs.h"
#include "muoncore/train/qk_clip.h"

namespace muoncore::train {
namespace {

std::vector<int64_t> lengths_of(const data::Batch& batch) {
  const auto* begin = batch.lengths.const_data_ptr<int64_t>();
  return {begin, begin + batch.lengths.size(0)};
}

// Minus the sum of the targets' log-probabilities of the given rows.
at::Tensor negative_log_likelihood(models::CausalLM& model, const data::Batch& batch,
                                   const std::vector<int64_t>& rows, int64_t width,
                                   const c10::Device& device) {
  const at::Tensor ids = take_rows(batch.ids, rows, width).to(device);
  const at::Tensor mask = take_rows(batch.loss_mask, rows, width).to(device);
  const auto pass = rl::response_log_probs(model, ids, mask);
  return -pass.log_probs.sum();
}

c10::Device device_of(const models::CausalLM& model) { return model.parameters()[0].device(); }

}  // namespace

Metrics sft_update(Trainee& trainee, const data::Batch& batch, std::optional<int64_t> micro_rows,
                   PhaseRecorder& recorder) {
  const auto update = recorder.phase("update");
  const c10::Device device = device_of(trainee.model);
  const double tokens = trainee.ranks.sum({static_cast<double>(batch.target_tokens)},
                                          "target tokens of the batch")[0];
  const std::vector<int64_t> lengths = lengths_of(batch);
  double loss_sum = 0.0;
  QkClip qk_clip(trainee);
  trainee.optimizer.zero_grad();
  wait_params(trainee);
  const auto parts = split_rows(lengths, micro_rows);
  for (const auto& rows : parts) {
    qk_clip.expect_rows(lengths, rows);
    const at::Tensor loss =
        negative_log_likelihood(trainee.model, batch, rows, longest(lengths, rows), device) /
        tokens;
    loss_sum += loss.item<double>();
    backward(trainee, loss, &rows == &parts.back());
  }
  Metrics metrics;
  metrics["train/loss"] = trainee.ranks.sum({loss_sum}, "loss of the batch")[0];
  metrics["train/lr"] = trainee.scheduler.lr();
  metrics["train/global_tokens"] = tokens;
  {
    const auto step = recorder.phase("optimizer_step");
    const optim::StepResult result = trainee.optimizer.step();
    add_step_metrics(result, "train/", metrics);
    qk_clip.after_step(result, "train/", metrics);
  }
  metrics["train/optim/state_bytes"] = static_cast<double>(trainee.optimizer.state_bytes());
  trainee.scheduler.step();
  trainee.optimizer.zero_grad();
  return metrics;
}

double sft_loss(models::CausalLM& model, const data::SftData& data, int64_t batch_size,
                int64_t padding_id, std::optional<int64_t> micro_rows, const Ranks& ranks) {
  const torch::NoGradGuard no_grad;
  const c10::Device device = device_of(model);
  double sum = 0.0;
  double tokens = 0.0;
  const Share share = ranks.share(data.size());
  for (int64_t first = share.begin; first < share.end; first += batch_size) {
    const int64_t count = std::min(batch_size, share.end - first);
    const data::Batch batch = data::sft_batch(data, first, count, padding_id);
    const std::vector<int64_t> lengths = lengths_of(batch);
    for (const auto& rows : split_rows(lengths, micro_rows)) {
      sum += negative_log_likelihood(model, batch, rows, longest(lengths, rows), device)
                 .item<double>();
    }
    tokens += static_cast<double>(batch.target_tokens);
  }
  const std::vector<double> all = ranks.sum({sum, tokens}, "held-out loss");
  return all[0] / std::max(all[1], 1.0);
}

}  // namespace muoncore::train
