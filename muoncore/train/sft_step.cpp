#include "muoncore/train/sft_step.h"

#include <algorithm>

#include "muoncore/rl/response_log_probs.h"

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
  const auto tokens = static_cast<double>(batch.target_tokens);
  const std::vector<int64_t> lengths = lengths_of(batch);
  double loss_sum = 0.0;
  trainee.optimizer.zero_grad();
  for (const auto& rows : split_rows(lengths, micro_rows)) {
    const at::Tensor loss =
        negative_log_likelihood(trainee.model, batch, rows, longest(lengths, rows), device) /
        tokens;
    loss_sum += loss.item<double>();
    loss.backward();
  }
  Metrics metrics;
  metrics["train/loss"] = loss_sum;
  metrics["train/lr"] = trainee.scheduler.lr();
  metrics["train/global_tokens"] = tokens;
  {
    const auto step = recorder.phase("optimizer_step");
    add_step_metrics(trainee.optimizer.step(), "train/", metrics);
  }
  metrics["train/optim/state_bytes"] = static_cast<double>(trainee.optimizer.state_bytes());
  trainee.scheduler.step();
  trainee.optimizer.zero_grad();
  return metrics;
}

double sft_loss(models::CausalLM& model, const data::SftData& data, int64_t batch_size,
                int64_t padding_id, std::optional<int64_t> micro_rows) {
  const torch::NoGradGuard no_grad;
  const c10::Device device = device_of(model);
  double sum = 0.0;
  double tokens = 0.0;
  for (int64_t first = 0; first < data.size(); first += batch_size) {
    const int64_t count = std::min(batch_size, data.size() - first);
    const data::Batch batch = data::sft_batch(data, first, count, padding_id);
    const std::vector<int64_t> lengths = lengths_of(batch);
    for (const auto& rows : split_rows(lengths, micro_rows)) {
      sum += negative_log_likelihood(model, batch, rows, longest(lengths, rows), device)
                 .item<double>();
    }
    tokens += static_cast<double>(batch.target_tokens);
  }
  return sum / std::max(tokens, 1.0);
}

}  // namespace muoncore::train
