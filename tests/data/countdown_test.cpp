#include "muoncore/data/countdown.h"

#include <gmock/gmock.h>

#include <set>

#include "muoncore/data/char_tokenizer.h"
#include "tests/data/tiny_tokenizer.h"

namespace muoncore::data {
namespace {

std::unique_ptr<Task> countdown(TaskOptions options = {}) {
  options.name = "countdown";
  return make_task(options, std::make_shared<CharTokenizer>());
}

Prompt problem(const std::string& text) { return {{}, text + "=", "countdown", text}; }

TEST(Countdown, RewardUsesEachNumberOnceFromLeftToRight) {
  auto task = countdown();
  EXPECT_EQ(task->reward(problem("2,3,7:42"), "2*3*7"), 1.0);
  EXPECT_EQ(task->reward(problem("2,3,7:42"), "7*3*2"), 1.0);
  EXPECT_EQ(task->reward(problem("2,3,7:35"), "2+3*7"), 1.0);  // (2 + 3) * 7
  EXPECT_EQ(task->reward(problem("2,3,7:23"), "2+3*7"), 0.0);  // not 2 + (3 * 7)
  EXPECT_EQ(task->reward(problem("2,3,7:04"), "7-3*1"), 0.0);
  EXPECT_EQ(task->reward(problem("2,3,7:09"), "2+7+0"), 0.0);
  EXPECT_EQ(task->reward(problem("2,2,7:11"), "2+2+7"), 1.0);
  EXPECT_EQ(task->reward(problem("2,2,7:16"), "2+7+7"), 0.0);
  for (const char* broken : {"", "2*3", "2*3*7=", "2**37", "2*3/7", "a*3*7", " 2*3*7", "2*3*7*1"})
    EXPECT_EQ(task->reward(problem("2,3,7:42"), broken), 0.0) << broken;
}

TEST(Countdown, EveryProblemIsSolvableAndEverySolutionRight) {
  auto task = countdown();
  std::set<std::string> keys;
  for (const CountdownProblem& p : Countdown::problems()) {
    std::string key =
        fmt::format("{},{},{}:{:02}", p.numbers[0], p.numbers[1], p.numbers[2], p.target);
    EXPECT_TRUE(keys.insert(key).second) << key;
    ASSERT_FALSE(p.solutions.empty());
    for (const std::string& solution : p.solutions)
      ASSERT_EQ(task->reward(problem(key), solution), 1.0) << key << " " << solution;
  }
  EXPECT_EQ(static_cast<int64_t>(keys.size()),
            task->train_size() + std::max<int64_t>(512, static_cast<int64_t>(keys.size()) / 10));
  EXPECT_TRUE(keys.contains("1,1,1:00"));  // 1*1-1
  EXPECT_TRUE(keys.contains("9,9,9:90"));  // 9*9+9
  EXPECT_FALSE(keys.contains("1,1,1:04"));
}

TEST(Countdown, TheTeacherIsRightAsOftenAsSaid) {
  auto task = countdown();
  int right = 0;
  const int examples = 3000;
  for (int64_t i = 0; i < examples; ++i) {
    SftExample example = task->sft_example(i);
    std::string text = CharTokenizer().decode(example.ids);  // a,b,c:tt=eoeoe
    ASSERT_EQ(text.size(), 14u);
    right += task->reward(problem(text.substr(0, 8)), text.substr(9)) == 1.0;
    ASSERT_EQ(example.loss_mask.size(), 16u);
    ASSERT_EQ(std::count(example.loss_mask.begin(), example.loss_mask.end(), 1), 6);
  }
  // 0.3, and what any expression hits by chance.
  EXPECT_GT(right / double(examples), 0.28);
  EXPECT_LT(right / double(examples), 0.40);
  TaskOptions options;
  options.teacher_error = 0.0;
  auto perfect = countdown(options);
  for (int64_t i = 0; i < 500; ++i) {
    std::string text = CharTokenizer().decode(perfect->sft_example(i).ids);
    ASSERT_EQ(perfect->reward(problem(text.substr(0, 8)), text.substr(9)), 1.0) << text;
  }
}

TEST(Countdown, HeldOutProblemsNeverTrain) {
  auto task = countdown();
  std::set<std::string> held_out;
  for (int64_t i = 0; i < task->eval_size(); ++i) held_out.insert(task->eval_prompt(i).text);
  EXPECT_EQ(held_out.size(), 512u);
  for (int64_t i = 0; i < task->train_size(); ++i)
    ASSERT_FALSE(held_out.contains(task->train_prompt(i).text));
  TaskOptions options;
  options.digits = 3;
  EXPECT_THROW(countdown(options), Error);
}

}  // namespace
}  // namespace muoncore::data
