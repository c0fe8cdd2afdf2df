#include "muoncore/data/task.h"

#include "muoncore/core/check.h"
#include "muoncore/data/addition.h"
#include "muoncore/data/countdown.h"
#include "muoncore/data/jsonl_task.h"
#include "muoncore/data/truncation.h"

namespace muoncore::data {

std::unique_ptr<Task> make_task(const TaskOptions& options,
                                std::shared_ptr<const Tokenizer> tokenizer) {
  check_choice("the task", options.name, {"addition", "addition_text", "countdown", "jsonl"});
  check_choice("truncation", options.truncation, {"error", "left", "right", "middle"});
  check(options.max_prompt_length >= 1, "max_prompt_length must be at least 1, not {}",
        options.max_prompt_length);
  double error = options.teacher_error.value_or(0.0);
  check(error >= 0.0 && error <= 1.0, "teacher_error is a probability, not {}", error);
  if (options.name == "addition") return std::make_unique<Addition>(options, std::move(tokenizer));
  if (options.name == "addition_text")
    return std::make_unique<AdditionText>(options, std::move(tokenizer));
  if (options.name == "countdown")
    return std::make_unique<Countdown>(options, std::move(tokenizer));
  return std::make_unique<JsonlTask>(options, std::move(tokenizer));
}

}  // namespace muoncore::data
