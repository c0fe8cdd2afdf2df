#include "muoncore/data/addition.h"

#include <gmock/gmock.h>

#include <set>

#include "muoncore/data/char_tokenizer.h"
#include "tests/data/tiny_tokenizer.h"

namespace muoncore::data {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

std::unique_ptr<Task> addition(TaskOptions options = {}) {
  options.name = "addition";
  return make_task(options, std::make_shared<CharTokenizer>());
}

std::string text_of(const Ids& ids) { return CharTokenizer().decode(ids, false); }

TEST(ReversedSum, ByHand) {
  EXPECT_EQ(reversed_sum(123, 456, 3, false), "9750");
  EXPECT_EQ(reversed_sum(999, 1, 3, false), "0001");
  EXPECT_EQ(reversed_sum(999, 999, 3, false), "8991");
  EXPECT_EQ(reversed_sum(999, 999, 3, true), "8880");
  EXPECT_EQ(reversed_sum(58, 67, 2, true), "510");
  EXPECT_EQ(reversed_sum(0, 0, 1, false), "00");
}

TEST(Addition, PromptsAndTruthsBelongTogether) {
  auto task = addition();
  std::set<std::string> texts;
  for (int64_t i = 0; i < 2000; ++i) {
    Prompt prompt = task->train_prompt(i);
    ASSERT_EQ(prompt.text.size(), 8u);
    int64_t a = std::stoll(prompt.text.substr(0, 3)), b = std::stoll(prompt.text.substr(4, 3));
    ASSERT_EQ(prompt.text, fmt::format("{:03}+{:03}=", a, b));
    ASSERT_EQ(prompt.ground_truth, reversed_sum(a, b, 3, false));
    ASSERT_EQ(text_of(prompt.ids), "<bos>" + prompt.text);
    ASSERT_EQ(prompt.data_source, "addition");
    texts.insert(prompt.text);
  }
  EXPECT_EQ(texts.size(), 2000u);
  EXPECT_EQ(task->train_size(), 900000);
  EXPECT_EQ(task->stop_ids(), Ids{CharTokenizer::kEos});
}

TEST(Addition, HeldOutPromptsNeverTrain) {
  TaskOptions options;
  options.digits = 2;
  options.eval_size = 1000;
  std::set<std::string> held_out, trained;
  auto task = addition(options);
  for (int64_t i = 0; i < task->eval_size(); ++i) held_out.insert(task->eval_prompt(i).text);
  EXPECT_EQ(held_out.size(), 1000u);
  for (uint64_t seed : {0, 1}) {
    options.seed = seed;
    auto seeded = addition(options);
    EXPECT_EQ(seeded->eval_prompt(7).text, task->eval_prompt(7).text);
    for (int64_t i = 0; i < seeded->train_size(); ++i) {
      trained.insert(seeded->train_prompt(i).text);
      trained.insert(text_of(seeded->sft_example(i).ids).substr(5, 6));
    }
  }
  EXPECT_EQ(trained.size(), 9000u);
  for (const std::string& text : trained) ASSERT_FALSE(held_out.contains(text)) << text;
}

TEST(Addition, TheTeacherForgetsEveryCarryOrNone) {
  auto task = addition();
  int forgot = 0, with_carry = 0;
  const int examples = 4000;
  for (int64_t i = 0; i < examples; ++i) {
    SftExample example = task->sft_example(i);
    std::string text = text_of(example.ids);  // <bos>ddd+ddd=dddd<eos>
    ASSERT_EQ(text.size(), 5u + 8u + 4u + 5u);
    int64_t a = std::stoll(text.substr(5, 3)), b = std::stoll(text.substr(9, 3));
    std::string answer = text.substr(13, 4);
    std::string right = reversed_sum(a, b, 3, false), wrong = reversed_sum(a, b, 3, true);
    ASSERT_TRUE(answer == right || answer == wrong) << text;
    EXPECT_TRUE(text.ends_with("<eos>"));
    ASSERT_EQ(example.loss_mask, (std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}));
    if (right != wrong) {
      ++with_carry;
      forgot += answer == wrong;
    }
  }
  EXPECT_NEAR(forgot / double(with_carry), 0.6, 0.03);
  // No carry in three digits: 0.55^3 of all pairs.
  EXPECT_NEAR(1.0 - with_carry / double(examples), 0.166, 0.02);
}

TEST(Addition, TeacherErrorIsAnOption) {
  TaskOptions options;
  for (double error : {0.0, 1.0}) {
    options.teacher_error = error;
    auto task = addition(options);
    for (int64_t i = 0; i < 200; ++i) {
      std::string text = text_of(task->sft_example(i).ids);
      int64_t a = std::stoll(text.substr(5, 3)), b = std::stoll(text.substr(9, 3));
      ASSERT_EQ(text.substr(13, 4), reversed_sum(a, b, 3, error == 1.0));
    }
  }
}

TEST(Addition, PromptsDependOnSeedAndIndexAlone) {
  TaskOptions options;
  options.seed = 5;
  auto one = addition(options), two = addition(options);
  two->train_prompt(3);
  EXPECT_EQ(one->train_prompt(77).text, two->train_prompt(77).text);
  EXPECT_EQ(one->sft_example(12).ids, two->sft_example(12).ids);
  EXPECT_NE(one->train_prompt(77).text, addition()->train_prompt(77).text);
}

TEST(Addition, RewardIsTheWholeResponse) {
  auto task = addition();
  Prompt prompt = task->eval_prompt(0);
  prompt.ground_truth = "9750";
  EXPECT_EQ(task->reward(prompt, "9750"), 1.0);
  for (const char* wrong : {"", "975", "97500", "0579", "9750=", " 9750"})
    EXPECT_EQ(task->reward(prompt, wrong), 0.0);
}

TEST(Addition, ImpossibleOptionsAreRefused) {
  auto error = [](auto change) {
    TaskOptions options;
    change(options);
    return error_of([&] { addition(options); });
  };
  EXPECT_THAT(error([](TaskOptions& o) { o.digits = 0; }), HasSubstr("digits"));
  EXPECT_THAT(error([](TaskOptions& o) { o.digits = 10; }), HasSubstr("digits"));
  EXPECT_THAT(error([](TaskOptions& o) { o.digits = 1; }),
              HasSubstr("eval_size must be between 1 and 50, not 512"));
  EXPECT_THAT(error([](TaskOptions& o) { o.eval_size = 0; }), HasSubstr("eval_size"));
  EXPECT_THAT(error([](TaskOptions& o) { o.teacher_error = 1.5; }), HasSubstr("teacher_error"));
  EXPECT_THAT(error([](TaskOptions& o) { o.teacher_error = NAN; }), HasSubstr("teacher_error"));
  EXPECT_THAT(error([](TaskOptions& o) { o.max_prompt_length = 0; }),
              HasSubstr("max_prompt_length"));
  EXPECT_THAT(error([](TaskOptions& o) { o.truncation = "lift"; }),
              HasSubstr("did you mean left?"));
  TaskOptions unknown;
  unknown.name = "additon";
  EXPECT_THAT(error_of([&] { make_task(unknown, std::make_shared<CharTokenizer>()); }),
              HasSubstr("did you mean addition?"));
}

TEST(Addition, PromptsBeyondTheLimit) {
  TaskOptions options;
  options.max_prompt_length = 8;
  EXPECT_THAT(error_of([&] { addition(options)->train_prompt(0); }),
              HasSubstr("has 9 tokens, more than 8"));
  options.truncation = "left";
  EXPECT_EQ(text_of(addition(options)->train_prompt(0).ids).size(), 8u);  // <bos> is gone
}

TEST(AdditionText, FewShotPromptStopsAtTheNewline) {
  TaskOptions options;
  options.name = "addition_text";
  auto tokenizer = std::make_shared<BpeTokenizer>(tiny_tokenizer_json({{"\n", "\n"}}), "FILE");
  EXPECT_THAT(error_of([&] { make_task(options, tokenizer); }), HasSubstr("EOS"));
  auto task = make_task(options, std::make_shared<CharTokenizer>());
  Prompt prompt = task->train_prompt(0);
  ASSERT_TRUE(prompt.text.starts_with("3+4=7\n12+25=37\n")) << prompt.text;
  std::string last = prompt.text.substr(15);
  size_t plus = last.find('+');
  EXPECT_EQ(prompt.ground_truth,
            std::to_string(std::stoll(last) + std::stoll(last.substr(plus + 1))));
  EXPECT_EQ(last.back(), '=');
  EXPECT_EQ(task->stop_ids(), (Ids{2, *CharTokenizer().token_id("\n")}));
  EXPECT_TRUE(text_of(task->sft_example(3).ids).ends_with("\n<eos>"));

  prompt.ground_truth = "42";
  for (const char* right : {"42", "42\n", " 42\n", "42.", "42 and more"})
    EXPECT_EQ(task->reward(prompt, right), 1.0) << right;
  for (const char* wrong : {"", "4", "421", "-42", "\n42", "x42", "042", "4 2"})
    EXPECT_EQ(task->reward(prompt, wrong), 0.0) << wrong;
  options.teacher_error = 0.5;
  EXPECT_THROW(make_task(options, std::make_shared<CharTokenizer>()), Error);
}

}  // namespace
}  // namespace muoncore::data
