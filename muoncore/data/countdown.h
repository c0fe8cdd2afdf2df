// countdown: reach a target with three numbers (rl.md section 1.2). `<bos>2,3,7:42=` is answered by
// an expression over each number once with + - *, worked out from left to right: `2*3*7`. Numbers 1
// to 9, targets 0 to 99. The teacher is right with probability 0.3 and else writes any expression
// over the numbers.
#pragma once

#include <array>

#include "muoncore/data/generated_task.h"

namespace muoncore::data {

struct CountdownProblem {
  std::array<int, 3> numbers;  // ascending
  int target;
  std::vector<std::string> solutions;  // every expression that reaches the target, sorted
};

class Countdown final : public GeneratedTask {
 public:
  Countdown(const TaskOptions& options, std::shared_ptr<const Tokenizer> tokenizer);
  double reward(const Prompt& prompt, const std::string& response_text) const override;

  // Every solvable problem, ordered by numbers, then target.
  static const std::vector<CountdownProblem>& problems();

 protected:
  Prompt prompt(int64_t problem) const override;
  std::string teach(int64_t problem, const CounterRng& rng) const override;

 private:
  double teacher_error_;
};

}  // namespace muoncore::data
