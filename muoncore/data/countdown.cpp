#include "muoncore/data/countdown.h"

#include <algorithm>
#include <map>
#include <set>

#include "muoncore/core/check.h"

namespace muoncore::data {
namespace {

constexpr int kLargestNumber = 9;
constexpr int kLargestTarget = 99;
constexpr double kTeacherError = 0.7;
constexpr std::string_view kOperators = "+-*";

int apply(int left, char op, int right) {
  return op == '+' ? left + right : op == '-' ? left - right : left * right;
}

bool is_number(char c) { return c >= '1' && c <= '9'; }
bool is_operator(char c) { return kOperators.find(c) != std::string_view::npos; }

// Value of `n o n o n`; nothing when the text has another form.
std::optional<int> value_of(std::string_view text) {
  bool form = text.size() == 5 && is_number(text[0]) && is_operator(text[1]) &&
              is_number(text[2]) && is_operator(text[3]) && is_number(text[4]);
  if (!form) return std::nullopt;
  return apply(apply(text[0] - '0', text[1], text[2] - '0'), text[3], text[4] - '0');
}

// All expressions over the numbers, in every order; sorted, each once.
std::set<std::string> expressions(std::array<int, 3> numbers) {
  std::set<std::string> all;
  std::sort(numbers.begin(), numbers.end());
  do {
    for (char first : kOperators)
      for (char second : kOperators)
        all.insert(fmt::format("{}{}{}{}{}", numbers[0], first, numbers[1], second, numbers[2]));
  } while (std::next_permutation(numbers.begin(), numbers.end()));
  return all;
}

std::vector<CountdownProblem> all_problems() {
  std::map<std::pair<std::array<int, 3>, int>, std::vector<std::string>> solutions;
  for (int a = 1; a <= kLargestNumber; ++a)
    for (int b = a; b <= kLargestNumber; ++b)
      for (int c = b; c <= kLargestNumber; ++c)
        for (const std::string& text : expressions({a, b, c}))
          if (int value = *value_of(text); value >= 0 && value <= kLargestTarget)
            solutions[{{a, b, c}, value}].push_back(text);
  std::vector<CountdownProblem> problems;
  for (auto& [key, texts] : solutions)
    problems.push_back({key.first, key.second, std::move(texts)});
  return problems;
}

}  // namespace

const std::vector<CountdownProblem>& Countdown::problems() {
  static const std::vector<CountdownProblem> all = all_problems();
  return all;
}

Countdown::Countdown(const TaskOptions& options, std::shared_ptr<const Tokenizer> tokenizer)
    : GeneratedTask(options, std::move(tokenizer), static_cast<int64_t>(problems().size())),
      teacher_error_(options.teacher_error.value_or(kTeacherError)) {
  check(!options.digits, "the task countdown has no option digits");
}

Prompt Countdown::prompt(int64_t problem) const {
  const CountdownProblem& p = problems()[static_cast<size_t>(problem)];
  Prompt prompt;
  prompt.ground_truth =
      fmt::format("{},{},{}:{:02}", p.numbers[0], p.numbers[1], p.numbers[2], p.target);
  prompt.text = prompt.ground_truth + "=";
  return prompt;
}

std::string Countdown::teach(int64_t problem, const CounterRng& rng) const {
  const CountdownProblem& p = problems()[static_cast<size_t>(problem)];
  if (rng.uniform(0) >= teacher_error_) return p.solutions[rng.below(1, p.solutions.size())];
  std::set<std::string> all = expressions(p.numbers);
  return *std::next(all.begin(), static_cast<int64_t>(rng.below(1, all.size())));
}

double Countdown::reward(const Prompt& prompt, const std::string& response_text) const {
  std::optional<int> value = value_of(response_text);
  if (!value) return 0.0;
  const std::string& truth = prompt.ground_truth;  // "a,b,c:target"
  std::string given = {truth[0], truth[2], truth[4]};
  std::string used = {response_text[0], response_text[2], response_text[4]};
  std::sort(used.begin(), used.end());
  return used == given && *value == std::stoi(truth.substr(6)) ? 1.0 : 0.0;
}

}  // namespace muoncore::data
