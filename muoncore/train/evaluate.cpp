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

void evaluate_batch(models::CausalLM& model, const data::Task& task,
                    const data::Tokenizer& tokenizer, const rl::RolloutOptions& options,
                    int64_t count, std::map<std::string, SourceSums>& sums) {
  std::vector<data::Prompt> prompts;
  std::vector<std::vector<int64_t>> ids;
  for (int64_t i = 0; i < count; ++i) {
    prompts.push_back(task.eval_prompt(static_cast<int64_t>(options.first_prompt) + i));
    ids.push_back(prompts.back().ids);
  }
  const rl::Rollout rollout = rl::generate(model, ids, options);
  const std::vector<std::string> texts = rl::response_texts(rollout, tokenizer);
  for (size_t row = 0; row < texts.size(); ++row) {
    const data::Prompt& prompt = prompts[row / static_cast<size_t>(options.n)];
    SourceSums& sum = sums[prompt.data_source];
    sum.reward += task.reward(prompt, texts[row]);
    sum.tokens += static_cast<double>(rollout.response_lengths[row]);
    sum.count += 1.0;
  }
}

}  // namespace

Metrics evaluate(models::CausalLM& model, const data::Task& task, const data::Tokenizer& tokenizer,
                 const EvaluateSettings& settings) {
  std::map<std::string, SourceSums> sums;
  rl::RolloutOptions options = settings.rollout;
  for (int64_t first = 0; first < task.eval_size(); first += settings.batch_prompts) {
    options.first_prompt = static_cast<uint64_t>(first);
    const int64_t count = std::min(settings.batch_prompts, task.eval_size() - first);
    evaluate_batch(model, task, tokenizer, options, count, sums);
  }
  Metrics metrics;
  for (const auto& [source, sum] : sums) {
    metrics[fmt::format("val-core/{}/acc/mean@{}", source, options.n)] = sum.reward / sum.count;
    metrics[fmt::format("val-aux/{}/response_length/mean", source)] = sum.tokens / sum.count;
  }
  return metrics;
}

}  // namespace muoncore::train
