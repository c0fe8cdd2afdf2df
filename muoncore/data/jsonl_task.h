// jsonl: prompts from files, one JSON object per line:
//   prompt (or the key that prompt_key names): a text, used as it is, or a list of messages for
//     the chat template
//   reward_model.ground_truth, else answer: a text. gsm8k: what follows `#### ` where there is one,
//     without commas
//   data_source: a text, optional
// Other keys are left alone. reward_fn `gsm8k`: see gsm8k_reward; `exact`: equal but for white
// space at the ends.
#pragma once

#include "muoncore/data/task.h"

namespace muoncore::data {

class JsonlTask final : public Task {
 public:
  JsonlTask(const TaskOptions& options, std::shared_ptr<const Tokenizer> tokenizer);

  Prompt train_prompt(int64_t index) const override;
  int64_t train_size() const override { return static_cast<int64_t>(train_.size()); }
  Prompt eval_prompt(int64_t index) const override;
  int64_t eval_size() const override { return static_cast<int64_t>(eval_.size()); }
  double reward(const Prompt& prompt, const std::string& response_text) const override;
  SftExample sft_example(int64_t index) const override;  // throws: files have no teacher
  const std::vector<int64_t>& stop_ids() const override { return stop_ids_; }

 private:
  std::vector<Prompt> read(const std::vector<std::filesystem::path>& files, int64_t max_lines);
  Prompt read_prompt(const class JsonNode& line);

  TaskOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Prompt> train_, eval_;
  std::vector<int64_t> stop_ids_;
};

}  // namespace muoncore::data
