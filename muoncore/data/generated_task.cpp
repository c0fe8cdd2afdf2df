#include "muoncore/data/generated_task.h"

#include <algorithm>

#include "muoncore/core/check.h"
#include "muoncore/data/truncation.h"

namespace muoncore::data {

GeneratedTask::GeneratedTask(const TaskOptions& options, std::shared_ptr<const Tokenizer> tokenizer,
                             int64_t n)
    : options_(options),
      tokenizer_(std::move(tokenizer)),
      split_(options.name, n, options.eval_size),
      stop_ids_(tokenizer_->special().stop) {
  check(tokenizer_->eos_id().has_value(), "the task {} needs a tokenizer with an EOS token",
        options.name);
}

void GeneratedTask::stop_at(char character) {
  for (int64_t id = 0; id < tokenizer_->vocab_size(); ++id)
    if (tokenizer_->token_bytes(id).find(character) != std::string::npos) stop_ids_.push_back(id);
  std::sort(stop_ids_.begin(), stop_ids_.end());
  stop_ids_.erase(std::unique(stop_ids_.begin(), stop_ids_.end()), stop_ids_.end());
}

Prompt GeneratedTask::finished(Prompt prompt) const {
  prompt.data_source = options_.name;
  prompt.ids = tokenizer_->encode(prompt.text, /*add_special_tokens=*/true);
  prompt.ids = keep(prompt.ids,
                    kept_ranges(static_cast<int64_t>(prompt.ids.size()), options_.max_prompt_length,
                                options_.truncation, "a prompt of the task " + options_.name));
  return prompt;
}

Prompt GeneratedTask::train_prompt(int64_t index) const {
  return finished(prompt(split_.train_item(options_.seed, "prompts", index)));
}

Prompt GeneratedTask::eval_prompt(int64_t index) const {
  return finished(prompt(split_.eval_item(index)));
}

SftExample GeneratedTask::sft_example(int64_t index) const {
  int64_t problem = split_.train_item(options_.seed, "teacher", index);
  CounterRng rng({options_.seed, hash_name("teacher's answer"), static_cast<uint64_t>(index)});
  std::vector<int64_t> response = tokenizer_->encode(teach(problem, rng));
  response.push_back(*tokenizer_->eos_id());
  return make_example(finished(prompt(problem)).ids, response);
}

SftExample make_example(std::vector<int64_t> prompt, const std::vector<int64_t>& response) {
  SftExample example;
  example.ids = std::move(prompt);
  example.loss_mask.assign(example.ids.size(), 0);
  example.ids.insert(example.ids.end(), response.begin(), response.end());
  example.loss_mask.insert(example.loss_mask.end(), response.size(), 1);
  return example;
}

}  // namespace muoncore::data
