#include "muoncore/data/jsonl_task.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/data/tiny_tokenizer.h"

namespace muoncore::data {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

TEST(Gsm8kReward, AsInVerl) {
  EXPECT_EQ(gsm8k_reward("so it is\n#### 72", "72"), 1.0);
  EXPECT_EQ(gsm8k_reward("#### 1,234", "1234"), 1.0);
  EXPECT_EQ(gsm8k_reward("#### -5", "-5"), 1.0);
  EXPECT_EQ(gsm8k_reward("#### 7 then #### 8", "8"), 1.0);  // the last one
  EXPECT_EQ(gsm8k_reward("#### 7 then #### 8", "7"), 0.0);
  EXPECT_EQ(gsm8k_reward("#### 7 then #### x", "7"), 1.0);  // the last that is a number
  EXPECT_EQ(gsm8k_reward("#### 72.", "72"), 0.0);           // equality of strings
  EXPECT_EQ(gsm8k_reward("#### 72.0", "72"), 0.0);
  EXPECT_EQ(gsm8k_reward("####72", "72"), 0.0);
  EXPECT_EQ(gsm8k_reward("#### $72", "72"), 0.0);  // the expression has no dollar
  EXPECT_EQ(gsm8k_reward("72", "72"), 0.0);
  EXPECT_EQ(gsm8k_reward("", "72"), 0.0);
  EXPECT_EQ(gsm8k_reward("#### 72" + std::string(293, 'x'), "72"), 1.0);  // 300 characters
  EXPECT_EQ(gsm8k_reward("#### 72" + std::string(294, 'x'), "72"), 0.0);
  std::string wide;
  for (int i = 0; i < 293; ++i) wide += "\xC3\xA9";  // characters, not bytes
  EXPECT_EQ(gsm8k_reward("#### 72" + wide, "72"), 1.0);
}

class JsonlTaskTest : public TemporaryFolder {
 protected:
  JsonlTaskTest() {
    options_.name = "jsonl";
    auto json = tiny_tokenizer_json({}, {"<eos>", "<|im_start|>", "<|im_end|>"});
    tokenizer_ = std::make_shared<BpeTokenizer>(json, "FILE");
  }
  std::unique_ptr<Task> task(std::string_view train, std::string_view val = "") {
    options_.train_files = {write("train.jsonl", train)};
    options_.val_files.clear();
    if (!val.empty()) options_.val_files = {write("val.jsonl", val)};
    return make_task(options_, tokenizer_);
  }
  std::string error(std::string_view train, std::string_view val = "") {
    return error_of([&] { task(train, val); });
  }
  TaskOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(JsonlTaskTest, PromptsTruthsAndSources) {
  auto t = task(
      "{\"prompt\": \"2+3?\", \"answer\": \"Add them.\\n#### 1,005\"}\r\n"
      "{\"prompt\": \"x\", \"reward_model\": {\"style\": \"rule\", \"ground_truth\": \"7\"}, "
      "\"data_source\": \"openai/gsm8k\", \"more\": [1]}",
      "{\"prompt\": \"y\", \"answer\": \"8\"}\n");
  ASSERT_EQ(t->train_size(), 2);
  std::map<std::string, Prompt> prompts;
  for (int64_t i = 0; i < 2; ++i) prompts[t->train_prompt(i).text] = t->train_prompt(i);
  EXPECT_EQ(prompts.at("2+3?").ids, (Ids{'2', '+', '3', '?'}));
  EXPECT_EQ(prompts.at("2+3?").ground_truth, "1005");
  EXPECT_EQ(prompts.at("2+3?").data_source, "jsonl");
  EXPECT_EQ(prompts.at("x").ground_truth, "7");
  EXPECT_EQ(prompts.at("x").data_source, "openai/gsm8k");
  EXPECT_EQ(t->eval_size(), 1);
  EXPECT_EQ(t->eval_prompt(0).text, "y");
  EXPECT_EQ(t->reward(prompts.at("2+3?"), "#### 1005"), 1.0);
  EXPECT_THROW(t->eval_prompt(1), Error);
  EXPECT_THAT(error_of([&] { t->sft_example(0); }), HasSubstr("no teacher"));
}

TEST_F(JsonlTaskTest, ExactRewardIgnoresWhiteSpaceAtTheEnds) {
  options_.reward_fn = "exact";
  auto t = task(R"({"prompt": "x", "answer": " Paris #### 4"})");
  Prompt prompt = t->train_prompt(0);
  EXPECT_EQ(t->reward(prompt, "Paris #### 4\n"), 1.0);
  EXPECT_EQ(t->reward(prompt, "Paris  #### 4"), 0.0);
  EXPECT_EQ(t->reward(prompt, ""), 0.0);
  options_.reward_fn = "exakt";
  EXPECT_THAT(error("{}"), HasSubstr("did you mean exact?"));
}

TEST_F(JsonlTaskTest, MessagesGoThroughTheChatTemplate) {
  options_.chat_template = "chatml";
  auto t = task(R"({"prompt": [{"role": "user", "content": "hi"}], "answer": "1"})");
  EXPECT_EQ(t->train_prompt(0).text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(t->train_prompt(0).ids.front(), 257);
  EXPECT_EQ(t->stop_ids(), Ids{258});
  EXPECT_THAT(error(R"({"prompt": [{"role": "assistant", "content": "hi"}], "answer": "1"})"),
              HasSubstr("train.jsonl:1: prompt"));
  EXPECT_THAT(error(R"({"prompt": [], "answer": "1"})"), HasSubstr("train.jsonl:1: prompt"));
  options_.chat_template = "auto";
  EXPECT_THAT(error(R"({"prompt": [{"role": "user", "content": "hi"}], "answer": "1"})"),
              HasSubstr("set chat_template"));
}

TEST_F(JsonlTaskTest, EpochsShuffleOrKeepTheFilesOrder) {
  std::string lines;
  for (int i = 0; i < 30; ++i)
    lines += fmt::format("{{\"prompt\": \"p{}\", \"answer\": \"{}\"}}\n", i, i);
  auto shuffled = task(lines);
  std::set<std::string> first;
  bool moved = false, differs = false;
  for (int64_t i = 0; i < 30; ++i) {
    first.insert(shuffled->train_prompt(i).text);
    moved |= shuffled->train_prompt(i).text != fmt::format("p{}", i);
    differs |= shuffled->train_prompt(i).text != shuffled->train_prompt(30 + i).text;
  }
  EXPECT_EQ(first.size(), 30u);
  EXPECT_TRUE(moved && differs);
  options_.shuffle = false;
  options_.train_max_samples = 4;
  auto plain = task(lines);
  EXPECT_EQ(plain->train_size(), 4);
  EXPECT_EQ(plain->train_prompt(7).text, "p3");
}

TEST_F(JsonlTaskTest, OverlongPrompts) {
  options_.max_prompt_length = 4;
  const char* lines =
      "{\"prompt\": \"abcdefg\", \"answer\": \"1\"}\n{\"prompt\": \"xyz\", \"answer\": \"2\"}\n";
  EXPECT_THAT(error(lines), HasSubstr("train.jsonl:1: the prompt has 7 tokens, more than 4"));
  options_.shuffle = false;
  const std::pair<const char*, Ids> cases[] = {{"left", {'d', 'e', 'f', 'g'}},
                                               {"right", {'a', 'b', 'c', 'd'}},
                                               {"middle", {'a', 'b', 'f', 'g'}}};
  for (const auto& [truncation, ids] : cases) {
    options_.truncation = truncation;
    EXPECT_EQ(task(lines)->train_prompt(0).ids, ids) << truncation;
  }
  options_.filter_overlong_prompts = true;
  EXPECT_EQ(task(lines)->train_size(), 1);
  options_.max_prompt_length = 2;
  EXPECT_THAT(error(lines), HasSubstr("no prompt"));
}

TEST_F(JsonlTaskTest, FaultyLinesAreNamedWithFileAndLine) {
  const std::string good = "{\"prompt\": \"p\", \"answer\": \"1\"}\n";
  const std::pair<std::string, const char*> cases[] = {
      {"\n", "train.jsonl:2 is empty"},
      {"  \r\n", "train.jsonl:2 is empty"},
      {"[1]\n", "train.jsonl:2 must be a JSON object"},
      {"{\"prompt\": \"p\"\n", "train.jsonl:2 is not valid JSON"},
      {"{\"prompt\": \"p\", \"answer\": \"1\"} x\n", "train.jsonl:2 is not valid JSON"},
      {"{\"prompt\": \"\xFF\", \"answer\": \"1\"}\n",
       "train.jsonl:2 is not valid UTF-8: byte 0xFF at position 12"},
      {"{\"prompt\": \"\\ud800\", \"answer\": \"1\"}\n", "train.jsonl:2 is not valid JSON"},
      {"\xEF\xBB\xBF{}\n", "train.jsonl:2 begins with a byte-order mark"},
      {"{\"answer\": \"1\"}\n", "train.jsonl:2: the object has no key 'prompt'"},
      {"{\"prompt\": 5, \"answer\": \"1\"}\n",
       "train.jsonl:2: prompt must be a string or a list of messages, not a number"},
      {"{\"prompt\": null, \"answer\": \"1\"}\n",
       "prompt must be a string or a list of messages, not null"},
      {"{\"prompt\": \"\", \"answer\": \"1\"}\n", "train.jsonl:2: the prompt has no tokens"},
      {"{\"prompt\": \"p\"}\n",
       "train.jsonl:2 has neither the key reward_model.ground_truth nor the key answer"},
      {"{\"prompt\": \"p\", \"answer\": 1}\n",
       "train.jsonl:2: answer must be a string, not a number"},
      {"{\"prompt\": \"p\", \"answer\": \" \"}\n",
       "train.jsonl:2: answer is \" \": the answer is empty"},
      {"{\"prompt\": \"p\", \"reward_model\": \"1\"}\n",
       "train.jsonl:2: reward_model must be an object, not a string"},
      {"{\"prompt\": \"p\", \"reward_model\": {}}\n",
       "train.jsonl:2: reward_model has no key 'ground_truth'"},
      {"{\"prompt\": \"p\", \"prompt\": \"q\", \"answer\": \"1\"}\n",
       "train.jsonl:2 has the key 'prompt' twice"},
      {"{\"prompt\": \"p\", \"answer\": \"1\", \"data_source\": 3}\n",
       "train.jsonl:2: data_source must be a string"},
      {std::string("{\"prompt\": \"p\0\", \"answer\": \"1\"}\n", 33),
       "train.jsonl:2 is not valid JSON"},
  };
  for (const auto& [line, message] : cases)
    EXPECT_THAT(error(good + line + good), HasSubstr(message)) << line;
  EXPECT_THAT(error(""), HasSubstr("train.jsonl is empty"));
  EXPECT_THAT(error("\xEF\xBB\xBF" + good),
              HasSubstr("train.jsonl:1 begins with a byte-order mark"));
  EXPECT_THAT(error(good, good), HasSubstr("share the prompt '...p'"));
  options_.train_files = {folder_ / "absent.jsonl"};
  EXPECT_THAT(error_of([&] { make_task(options_, tokenizer_); }),
              AllOf(HasSubstr("absent.jsonl"), EndsWith("No such file or directory")));
  options_.train_files = {folder_};
  EXPECT_THAT(error_of([&] { make_task(options_, tokenizer_); }), HasSubstr("Is a directory"));
  options_.train_files.clear();
  EXPECT_THAT(error_of([&] { make_task(options_, tokenizer_); }), HasSubstr("train_files"));
}

TEST_F(JsonlTaskTest, HugeAndDeepLinesAreStood) {
  options_.max_prompt_length = 1 << 24;
  std::string huge(5 << 20, 'a');
  EXPECT_EQ(task("{\"prompt\": \"" + huge + "\", \"answer\": \"1\"}")->train_prompt(0).ids.size(),
            huge.size());
  options_.chat_template = "chatml";
  std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_THAT(error("{\"prompt\": " + deep + ", \"answer\": \"1\"}"),
              HasSubstr("train.jsonl:1: prompt[0] must be an object, not a list"));
}

}  // namespace
}  // namespace muoncore::data
