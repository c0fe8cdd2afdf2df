#include "muoncore/train/evaluate.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>

namespace muoncore::train {
namespace {

struct SourceSums {
  double reward = 0.0;
  double tokens = 0.0;
  double count = 0.0;
};

// One entry per response: prompts in order, the samples of each together.
struct Answers {
  std::vector<double> rewards;
  std::vector<int64_t> tokens;
};

// Prompts first .. first + count.
void answer(models::CausalLM& model, const data::Task& task, const data::Tokenizer& tokenizer,
            rl::RolloutOptions options, int64_t first, int64_t count, Answers& answers) {
  std::vector<data::Prompt> prompts;
  std::vector<std::vector<int64_t>> ids;
  for (int64_t i = first; i < first + count; ++i) {
    prompts.push_back(task.eval_prompt(i));
    ids.push_back(prompts.back().ids);
  }
  options.first_prompt = static_cast<uint64_t>(first);
  const rl::Rollout rollout = rl::generate(model, ids, options);
  const std::vector<std::string> texts = rl::response_texts(rollout, tokenizer);
  for (size_t row = 0; row < texts.size(); ++row) {
    answers.rewards.push_back(
        task.reward(prompts[row / static_cast<size_t>(options.n)], texts[row]));
    answers.tokens.push_back(rollout.response_lengths[row]);
  }
}

}  // namespace

Metrics evaluate(models::CausalLM& model, const data::Task& task, const data::Tokenizer& tokenizer,
                 const EvaluateSettings& settings, const Ranks& ranks) {
  const int64_t n = settings.rollout.n;
  const Share share = ranks.share(task.eval_size());
  Answers own;
  for (int64_t first = share.begin; first < share.end; first += settings.batch_prompts) {
    const int64_t count = std::min(settings.batch_prompts, share.end - first);
    answer(model, task, tokenizer, settings.rollout, first, count, own);
  }
  const auto rewards = ranks.gather(own.rewards, task.eval_size(), "held-out rewards", n);
  const auto tokens = ranks.gather(own.tokens, task.eval_size(), "held-out lengths", n);
  std::map<std::string, SourceSums> sums;
  for (size_t row = 0; row < rewards.size(); ++row) {
    SourceSums& sum = sums[task.eval_prompt(static_cast<int64_t>(row) / n).data_source];
    sum.reward += rewards[row];
    sum.tokens += static_cast<double>(tokens[row]);
    sum.count += 1.0;
  }
  Metrics metrics;
  for (const auto& [source, sum] : sums) {
    metrics[fmt::format("val-core/{}/acc/mean@{}", source, n)] = sum.reward / sum.count;
    metrics[fmt::format("val-aux/{}/response_length/mean", source)] = sum.tokens / sum.count;
  }
  return metrics;
}

}  // namespace muoncore::train
