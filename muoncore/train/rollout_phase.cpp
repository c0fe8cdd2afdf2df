#include "muoncore/train/rollout_phase.h"

#include <algorithm>
#include <utility>

#include "muoncore/rl/response_log_probs.h"

namespace muoncore::train {

RolloutBatch sample_rollouts(models::CausalLM& model, const data::Task& task,
                             const data::Tokenizer& tokenizer, int64_t first, int64_t count,
                             const rl::RolloutOptions& options) {
  RolloutBatch batch;
  std::vector<std::vector<int64_t>> ids;
  for (int64_t i = first; i < first + count; ++i) {
    batch.prompts.push_back(task.train_prompt(i));
    ids.push_back(batch.prompts.back().ids);
  }
  batch.samples_per_prompt = options.n;
  batch.rollout = rl::generate(model, ids, options);
  batch.responses = rl::response_texts(batch.rollout, tokenizer);
  // Rows are assembled on the CPU; what follows reads them where the model is.
  const c10::Device device = model.parameters().front().device();
  for (at::Tensor* part :
       {&batch.rollout.ids, &batch.rollout.response_mask, &batch.rollout.log_probs}) {
    *part = part->to(device);
  }
  return batch;
}

void score_rollouts(RolloutBatch& batch, const data::Task& task) {
  batch.scores.resize(batch.responses.size());
  for (size_t i = 0; i < batch.responses.size(); ++i) {
    const auto& prompt = batch.prompts[i / static_cast<size_t>(batch.samples_per_prompt)];
    batch.scores[i] = task.reward(prompt, batch.responses[i]);
  }
  batch.rewards = batch.scores;
}

LogProbPass log_prob_pass(models::CausalLM& model, const RolloutBatch& batch, double temperature,
                          std::optional<int64_t> micro_rows, bool with_entropy) {
  const torch::NoGradGuard no_grad;
  const std::vector<int64_t> lengths = batch.lengths();
  const at::Tensor& mask = batch.rollout.response_mask;
  LogProbPass out;
  out.log_probs = torch::zeros(mask.sizes(), mask.options().dtype(torch::kFloat));
  double entropy_sum = 0.0;
  for (const auto& rows : split_rows(lengths, micro_rows)) {
    const int64_t width = longest(lengths, rows);
    const auto pass =
        rl::response_log_probs(model, take_rows(batch.rollout.ids, rows, width),
                               take_rows(mask, rows, width), temperature, with_entropy);
    const at::Tensor index = torch::tensor(rows, torch::kInt64).to(mask.device());
    out.log_probs.slice(1, 0, width).index_copy_(0, index, pass.log_probs.to(torch::kFloat));
    if (with_entropy) entropy_sum += pass.entropy.sum(torch::kDouble).item<double>();
  }
  if (with_entropy) {
    out.mean_entropy = entropy_sum / std::max(mask.sum(torch::kDouble).item<double>(), 1.0);
  }
  return out;
}

void apply_kl_in_reward(RolloutBatch& batch, const rl::KlPenalty& penalty,
                        rl::KlController& controller, Metrics& metrics) {
  auto result = rl::kl_in_reward(batch.scores, batch.old_log_probs, batch.ref_log_probs,
                                 batch.rollout.response_mask, penalty, controller.coef());
  batch.rewards = std::move(result.scores);
  metrics["actor/reward_kl_penalty"] = result.mean_kl;
  metrics["actor/reward_kl_penalty_coeff"] = controller.coef();
  controller.update(result.mean_kl, batch.rows());
}

void compute_advantages(RolloutBatch& batch, bool norm_adv_by_std) {
  std::vector<int64_t> groups(batch.rewards.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i] = static_cast<int64_t>(i) / batch.samples_per_prompt;
  }
  batch.advantages = rl::grpo_advantages(batch.rewards, groups, norm_adv_by_std);
}

namespace {

double share_of_constant_groups(const RolloutBatch& batch) {
  const auto n = static_cast<size_t>(batch.samples_per_prompt);
  size_t constant = 0;
  for (size_t first = 0; first < batch.rewards.size(); first += n) {
    const auto begin = batch.rewards.begin() + static_cast<int64_t>(first);
    constant +=
        std::all_of(begin, begin + static_cast<int64_t>(n), [&](double r) { return r == *begin; });
  }
  return static_cast<double>(constant * n) / static_cast<double>(batch.rewards.size());
}

// verl's advantages metric is over tokens: an advantage counts once per token of its response.
std::vector<double> token_advantages(const RolloutBatch& batch) {
  std::vector<double> out;
  for (size_t i = 0; i < batch.advantages.size(); ++i) {
    out.insert(out.end(), static_cast<size_t>(batch.rollout.response_lengths[i]),
               batch.advantages[i]);
  }
  return out;
}

}  // namespace

void add_rollout_metrics(const RolloutBatch& batch, int64_t max_response_length, Metrics& metrics) {
  add_distribution(metrics, "critic/score", batch.scores);
  add_distribution(metrics, "critic/rewards", batch.rewards);
  add_distribution(metrics, "critic/advantages", token_advantages(batch));
  add_distribution(metrics, "critic/returns", token_advantages(batch));  // GRPO: the same
  metrics["critic/constant_groups"] = share_of_constant_groups(batch);
  const auto& lengths = batch.rollout.response_lengths;
  add_distribution(metrics, "response_length", lengths);
  const auto clipped = std::count(lengths.begin(), lengths.end(), max_response_length);
  metrics["response_length/clip_ratio"] =
      static_cast<double>(clipped) / static_cast<double>(lengths.size());
  add_distribution(metrics, "prompt_length", batch.rollout.prompt_lengths);
}

void add_probability_gap(const RolloutBatch& batch, Metrics& metrics) {
  if (!batch.old_log_probs.defined()) return;
  const at::Tensor mask = batch.rollout.response_mask.to(torch::kBool);
  const at::Tensor gap = (batch.old_log_probs.exp() - batch.rollout.log_probs.exp())
                             .abs()
                             .masked_select(mask)
                             .to(torch::kDouble);
  metrics["training/rollout_probs_diff_mean"] = gap.mean().item<double>();
  metrics["training/rollout_probs_diff_max"] = gap.max().item<double>();
}

}  // namespace muoncore::train
