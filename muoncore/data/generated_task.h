// What the tasks whose prompts are made, not read, have in common.
#pragma once

#include <memory>

#include "muoncore/data/split.h"
#include "muoncore/data/task.h"

namespace muoncore::data {

// A task is an enumeration of n problems, with a prompt and a teacher for each.
class GeneratedTask : public Task {
 public:
  // n: number of problems.
  GeneratedTask(const TaskOptions& options, std::shared_ptr<const Tokenizer> tokenizer, int64_t n);

  Prompt train_prompt(int64_t index) const override;
  int64_t train_size() const override { return split_.train_size(); }
  Prompt eval_prompt(int64_t index) const override;
  int64_t eval_size() const override { return split_.eval_size(); }
  SftExample sft_example(int64_t index) const override;
  const std::vector<int64_t>& stop_ids() const override { return stop_ids_; }

 protected:
  virtual Prompt prompt(int64_t problem) const = 0;  // ids are filled in afterwards
  // The teacher's response. `rng` is the stream of this example: draws are a pure function of
  // (seed, index).
  virtual std::string teach(int64_t problem, const CounterRng& rng) const = 0;
  // Also stop at every token that holds `character`.
  void stop_at(char character);

  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  Prompt finished(Prompt prompt) const;

  TaskOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  HeldOutSplit split_;
  std::vector<int64_t> stop_ids_;
};

// `prompt`, then `response` as targets.
SftExample make_example(std::vector<int64_t> prompt, const std::vector<int64_t>& response);

}  // namespace muoncore::data
