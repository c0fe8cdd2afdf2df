#include "muoncore/data/addition.h"

#include "muoncore/core/check.h"

namespace muoncore::data {
namespace {

constexpr int64_t kDigits = 3;
constexpr int64_t kTextDigits = 2;
constexpr int64_t kMostDigits = 9;  // pairs of numbers still have 64-bit indices
constexpr double kTeacherError = 0.6;

int64_t power_of_ten(int64_t digits) {
  int64_t power = 1;
  for (int64_t i = 0; i < digits; ++i) power *= 10;
  return power;
}

int64_t checked_digits(const TaskOptions& options, int64_t otherwise) {
  int64_t digits = options.digits.value_or(otherwise);
  check(digits >= 1 && digits <= kMostDigits,
        "digits of the task {} must be between 1 and {}, not {}", options.name, kMostDigits,
        digits);
  return digits;
}

// Number of pairs of operands.
int64_t problems(const TaskOptions& options, int64_t otherwise) {
  return power_of_ten(2 * checked_digits(options, otherwise));
}

}  // namespace

std::string reversed_sum(int64_t a, int64_t b, int64_t digits, bool forget_carries) {
  std::string text;
  int64_t carry = 0;
  for (int64_t i = 0; i <= digits; ++i, a /= 10, b /= 10) {
    int64_t sum = a % 10 + b % 10 + carry;
    text += static_cast<char>('0' + sum % 10);
    carry = forget_carries ? 0 : sum / 10;
  }
  return text;
}

Addition::Addition(const TaskOptions& options, std::shared_ptr<const Tokenizer> tokenizer)
    : GeneratedTask(options, std::move(tokenizer), problems(options, kDigits)),
      digits_(checked_digits(options, kDigits)),
      teacher_error_(options.teacher_error.value_or(kTeacherError)) {}

Prompt Addition::prompt(int64_t problem) const {
  int64_t limit = power_of_ten(digits_);
  int64_t a = problem / limit, b = problem % limit;
  Prompt prompt;
  prompt.text = fmt::format("{:0{}}+{:0{}}=", a, digits_, b, digits_);
  prompt.ground_truth = reversed_sum(a, b, digits_, /*forget_carries=*/false);
  return prompt;
}

std::string Addition::teach(int64_t problem, const CounterRng& rng) const {
  int64_t limit = power_of_ten(digits_);
  return reversed_sum(problem / limit, problem % limit, digits_, rng.uniform(0) < teacher_error_);
}

double Addition::reward(const Prompt& prompt, const std::string& response_text) const {
  return response_text == prompt.ground_truth ? 1.0 : 0.0;
}

AdditionText::AdditionText(const TaskOptions& options, std::shared_ptr<const Tokenizer> tokenizer)
    : GeneratedTask(options, std::move(tokenizer), problems(options, kTextDigits)),
      limit_(power_of_ten(checked_digits(options, kTextDigits))) {
  check(!options.teacher_error,
        "the teacher of the task addition_text makes no errors; leave teacher_error away");
  stop_at('\n');
}

Prompt AdditionText::prompt(int64_t problem) const {
  int64_t a = problem / limit_, b = problem % limit_;
  Prompt prompt;
  prompt.text = fmt::format("3+4=7\n12+25=37\n{}+{}=", a, b);
  prompt.ground_truth = std::to_string(a + b);
  return prompt;
}

std::string AdditionText::teach(int64_t problem, const CounterRng&) const {
  return prompt(problem).ground_truth + "\n";
}

double AdditionText::reward(const Prompt& prompt, const std::string& response_text) const {
  size_t begin = std::min(response_text.find_first_not_of(' '), response_text.size());
  size_t end = std::min(response_text.find_first_not_of("0123456789", begin), response_text.size());
  return response_text.substr(begin, end - begin) == prompt.ground_truth ? 1.0 : 0.0;
}

}  // namespace muoncore::data
