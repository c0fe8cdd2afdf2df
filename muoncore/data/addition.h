// Two tasks of adding numbers.
//
// addition: `<bos>ddd+ddd=` with a fixed number of digits (zeros in front), answered by the sum in
// one digit more, least significant digit first. Its teacher forgets every carry with probability
// 0.6: it knows the form and both rules, and only the reward knows which one is right (the toy of
// the references, rl.md section 1.1).
//
// addition_text: a few-shot prompt for a language model, `3+4=7\n12+25=37\nx+y=` (rl.md
// section 1.4). The reward is 1 when the number that the response begins with is the sum. A
// response ends at the newline.
#pragma once

#include "muoncore/data/generated_task.h"

namespace muoncore::data {

class Addition final : public GeneratedTask {
 public:
  Addition(const TaskOptions& options, std::shared_ptr<const Tokenizer> tokenizer);
  double reward(const Prompt& prompt, const std::string& response_text) const override;

 protected:
  Prompt prompt(int64_t problem) const override;
  std::string teach(int64_t problem, const CounterRng& rng) const override;

 private:
  int64_t digits_;
  double teacher_error_;
};

class AdditionText final : public GeneratedTask {
 public:
  AdditionText(const TaskOptions& options, std::shared_ptr<const Tokenizer> tokenizer);
  double reward(const Prompt& prompt, const std::string& response_text) const override;

 protected:
  Prompt prompt(int64_t problem) const override;
  std::string teach(int64_t problem, const CounterRng& rng) const override;

 private:
  int64_t limit_;  // operands are below
};

// The sum of a and b in `digits` + 1 digits, least significant first; without carries if so asked.
std::string reversed_sum(int64_t a, int64_t b, int64_t digits, bool forget_carries);

}  // namespace muoncore::data
