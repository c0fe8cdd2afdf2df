#include "muoncore/train/rollout_phase.h"

#include <algorithm>
#include <utility>

#include "muoncore/rl/response_log_probs.h"
#include "muoncore/train/rollout_record.h"

namespace muoncore::train {

namespace {

at::Tensor widened(const at::Tensor& rows, int64_t width, double fill) {
  return torch::constant_pad_nd(rows, {0, width - rows.size(1)}, fill);
}

// The rollouts of all ranks, in the order of the prompts; `own` are those of this rank's share.
rl::Rollout gather_rollout(const rl::Rollout& own, int64_t prompts, int64_t n, int64_t pad_id,
                           const Ranks& ranks) {
  if (ranks.size() == 1) return own;
  const auto width = static_cast<int64_t>(
      ranks.max({static_cast<double>(own.ids.size(1))}, "width of the rollouts")[0]);
  std::vector<int64_t> reasons;
  for (const rl::FinishReason reason : own.finish_reasons)
    reasons.push_back(static_cast<int64_t>(reason));
  rl::Rollout all;
  const auto fill = static_cast<double>(pad_id);
  all.ids = ranks.gather(widened(own.ids, width, fill), prompts, "ids of the rollouts", n);
  all.response_mask =
      ranks.gather(widened(own.response_mask, width, 0), prompts, "mask of the rollouts", n);
  all.log_probs =
      ranks.gather(widened(own.log_probs, width, 0), prompts, "rollout log-probabilities", n);
  all.prompt_lengths = ranks.gather(own.prompt_lengths, prompts, "prompt lengths", n);
  all.response_lengths = ranks.gather(own.response_lengths, prompts, "response lengths", n);
  for (const int64_t reason : ranks.gather(reasons, prompts, "finish reasons", n))
    all.finish_reasons.push_back(static_cast<rl::FinishReason>(reason));
  return all;
}

}  // namespace

RolloutBatch sample_rollouts(models::CausalLM& model, const data::Task& task,
                             const data::Tokenizer& tokenizer, int64_t first, int64_t count,
                             rl::RolloutOptions options, const Ranks& ranks,
                             const std::optional<std::filesystem::path>& recorded) {
  RolloutBatch batch;
  for (int64_t i = first; i < first + count; ++i) batch.prompts.push_back(task.train_prompt(i));
  batch.samples_per_prompt = options.n;
  const Share share = ranks.share(count);
  batch.own = {share.begin * options.n, share.end * options.n};
  std::vector<std::vector<int64_t>> ids;
  for (int64_t i = share.begin; i < share.end; ++i) ids.push_back(batch.prompts[i].ids);
  options.first_prompt = static_cast<uint64_t>(share.begin);
  const rl::Rollout own =
      recorded ? recorded_rollouts(*recorded, ids, options) : rl::generate(model, ids, options);
  batch.responses = rl::response_texts(own, tokenizer);
  batch.rollout = gather_rollout(own, count, options.n, options.pad_id, ranks);
  // Rows are assembled on the CPU; what follows reads them where the model is.
  const c10::Device device = model.parameters().front().device();
  for (at::Tensor* part :
       {&batch.rollout.ids, &batch.rollout.response_mask, &batch.rollout.log_probs}) {
    *part = part->to(device);
  }
  return batch;
}

void score_rollouts(RolloutBatch& batch, const data::Task& task, const Ranks& ranks) {
  std::vector<double> own;
  for (size_t i = 0; i < batch.responses.size(); ++i) {
    const auto row = static_cast<size_t>(batch.own.begin) + i;
    const auto& prompt = batch.prompts[row / static_cast<size_t>(batch.samples_per_prompt)];
    own.push_back(task.reward(prompt, batch.responses[i]));
  }
  batch.scores = ranks.gather(own, static_cast<int64_t>(batch.prompts.size()), "scores",
                              batch.samples_per_prompt);
  batch.rewards = batch.scores;
}

LogProbPass log_prob_pass(models::CausalLM& model, const RolloutBatch& batch, double temperature,
                          std::optional<int64_t> micro_rows, bool with_entropy,
                          const Ranks& ranks) {
  const torch::NoGradGuard no_grad;
  const Share share = ranks.share(batch.rows());
  const auto own_rows = [&](const at::Tensor& all) { return all.slice(0, share.begin, share.end); };
  const std::vector<int64_t> all_lengths = batch.lengths();
  const std::vector<int64_t> lengths(all_lengths.begin() + share.begin,
                                     all_lengths.begin() + share.end);
  const at::Tensor ids = own_rows(batch.rollout.ids);
  const at::Tensor mask = own_rows(batch.rollout.response_mask);
  LogProbPass out;
  at::Tensor own = torch::zeros(mask.sizes(), mask.options().dtype(torch::kFloat));
  double entropy_sum = 0.0;
  for (const auto& rows : split_rows(lengths, micro_rows)) {
    const int64_t width = longest(lengths, rows);
    const auto pass =
        rl::response_log_probs(model, take_rows(ids, rows, width), take_rows(mask, rows, width),
                               temperature, with_entropy);
    const at::Tensor index = torch::tensor(rows, torch::kInt64).to(mask.device());
    own.slice(1, 0, width).index_copy_(0, index, pass.log_probs.to(torch::kFloat));
    if (with_entropy) entropy_sum += pass.entropy.sum(torch::kDouble).item<double>();
  }
  out.log_probs = ranks.gather(own, batch.rows(), "log-probabilities");
  if (with_entropy) {
    const double tokens = batch.rollout.response_mask.sum(torch::kDouble).item<double>();
    out.mean_entropy = ranks.sum({entropy_sum}, "entropy")[0] / std::max(tokens, 1.0);
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
