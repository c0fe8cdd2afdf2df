#include "muoncore/data/sft_data.h"

#include <gmock/gmock.h>

#include <set>

#include "muoncore/data/char_tokenizer.h"
#include "muoncore/data/task.h"
#include "tests/data/tiny_tokenizer.h"

namespace muoncore::data {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;
using Mask = std::vector<uint8_t>;

constexpr int64_t kEos = 256, kStart = 257, kEnd = 258;

class SftDataTest : public TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    write("tokenizer.json",
          tiny_tokenizer_json({}, {"<eos>", "<|im_start|>", "<|im_end|>"}).dump());
    write("tokenizer_config.json", R"({"eos_token": "<eos>"})");
    tokenizer_ = load_tokenizer(folder_);
    options_.chat_template = "chatml";
  }
  std::unique_ptr<SftData> load(std::string_view lines) {
    return load_sft_jsonl({write("sft.jsonl", lines)}, tokenizer_, options_);
  }
  std::string error(std::string_view lines) {
    return error_of([&] { load(lines); });
  }
  std::shared_ptr<const Tokenizer> tokenizer_;
  SftOptions options_;
};

TEST_F(SftDataTest, PromptAndResponse) {
  SftExample example =
      load("{\"prompt\": \"ab\", \"response\": \"c\", \"extra\": 1}\n")->example(0);
  EXPECT_EQ(example.ids, (Ids{'a', 'b', 'c', kEos}));
  EXPECT_EQ(example.loss_mask, (Mask{0, 0, 1, 1}));
}

TEST_F(SftDataTest, Messages) {
  SftExample example =
      load(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]})")
          ->example(0);
  EXPECT_EQ(example.ids.front(), kStart);
  Ids targets;
  for (size_t i = 0; i < example.ids.size(); ++i)
    if (example.loss_mask[i]) targets.push_back(example.ids[i]);
  EXPECT_EQ(targets, (Ids{'b', 'c', kEnd}));
  EXPECT_EQ(example.ids.back(), '\n');
  EXPECT_EQ(example.loss_mask.back(), 0);
}

TEST_F(SftDataTest, EpochsAreResumableByPosition) {
  std::string lines;
  for (char c = 'a'; c <= 'j'; ++c)
    lines += fmt::format("{{\"prompt\": \"p\", \"response\": \"{}\"}}\n", c);
  auto data = load(lines);
  ASSERT_EQ(data->size(), 10);
  std::string order;
  for (int64_t i = 0; i < 20; ++i) order += static_cast<char>(data->example(i).ids[1]);
  EXPECT_EQ(std::set<char>(order.begin(), order.begin() + 10).size(), 10u);
  EXPECT_EQ(std::set<char>(order.begin() + 10, order.end()).size(), 10u);
  EXPECT_NE(order.substr(0, 10), order.substr(10));
  EXPECT_NE(order.substr(0, 10), "abcdefghij");
  auto again = load(lines);
  EXPECT_EQ(static_cast<char>(again->example(13).ids[1]), order[13]);
  options_.seed = 1;
  std::string other;
  auto seeded = load(lines);
  for (int64_t i = 0; i < 10; ++i) other += static_cast<char>(seeded->example(i).ids[1]);
  EXPECT_NE(other, order.substr(0, 10));
  options_.shuffle = false;
  options_.max_samples = 3;
  auto plain = load(lines);
  EXPECT_EQ(plain->size(), 3);
  EXPECT_EQ(plain->example(4).ids[1], 'b');
}

TEST_F(SftDataTest, Truncation) {
  const char* line = R"({"prompt": "abc", "response": "de"})";  // 6 tokens
  options_.max_length = 5;
  EXPECT_THAT(error(line), HasSubstr("sft.jsonl:1 has 6 tokens, more than 5"));
  options_.truncation = "right";
  EXPECT_EQ(load(line)->example(0).ids, (Ids{'a', 'b', 'c', 'd', 'e'}));
  options_.truncation = "left";
  options_.max_length = 3;
  EXPECT_EQ(load(line)->example(0).ids, (Ids{'d', 'e', kEos}));
  EXPECT_EQ(load(line)->example(0).loss_mask, (Mask{0, 1, 1}));  // nothing predicts the first token
  options_.truncation = "right";
  EXPECT_THAT(error(line), HasSubstr("sft.jsonl:1 has no target"));
  options_.truncation = "middle";
  EXPECT_THAT(error(line), HasSubstr("truncation"));
  options_.truncation = "right";
  options_.max_length = 1;
  EXPECT_THAT(error(line), HasSubstr("max_length"));
}

TEST_F(SftDataTest, FaultyLinesAreNamedWithFileAndLine) {
  const std::string good = R"({"prompt": "p", "response": "r"})"
                           "\n";
  const std::pair<const char*, const char*> cases[] = {
      {"\n", "sft.jsonl:2 is empty"},
      {"{}\n", "sft.jsonl:2 has neither"},
      {"{\"prompt\": \"p\"}\n", "sft.jsonl:2: the object has no key 'response'"},
      {"{\"response\": \"p\"}\n", "sft.jsonl:2: the object has no key 'prompt'"},
      {"{\"prompt\": \"p\", \"response\": 3}\n",
       "sft.jsonl:2: response must be a string, not a number"},
      {"{\"prompt\": [], \"response\": \"r\"}\n",
       "sft.jsonl:2: prompt must be a string, not a list"},
      {"{\"prompt\": \"\", \"response\": \"r\"}\n", "the prompt has no tokens"},
      {"{\"prompt\": \"p\", \"response\": \"\"}\n", "the response has no tokens"},
      {"{\"prompt\": \"p\", \"response\": \"r\", \"messages\": []}\n", "has both"},
      {"{\"messages\": \"x\"}\n", "sft.jsonl:2: messages must be a list"},
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n", "sft.jsonl:2 has no target"},
  };
  for (const auto& [line, message] : cases)
    EXPECT_THAT(error(good + line + good), HasSubstr(message)) << line;
  EXPECT_THROW(load_sft_jsonl({}, tokenizer_, options_), Error);
}

TEST_F(SftDataTest, PromptAndResponseNeedAnEos) {
  auto without = std::make_shared<BpeTokenizer>(tiny_tokenizer_json({}), "FILE");
  auto path = write("sft.jsonl", R"({"prompt": "p", "response": "r"})");
  EXPECT_THAT(error_of([&] { load_sft_jsonl({path}, without, options_); }), HasSubstr("EOS"));
}

TEST(TeacherSftData, IsTheTasksTeacher) {
  TaskOptions options;
  options.name = "addition";
  std::shared_ptr<const Task> task = make_task(options, std::make_shared<CharTokenizer>());
  auto data = teacher_sft_data(task);
  EXPECT_EQ(data->size(), task->train_size());
  EXPECT_EQ(data->example(11).ids, task->sft_example(11).ids);
}

}  // namespace
}  // namespace muoncore::data
