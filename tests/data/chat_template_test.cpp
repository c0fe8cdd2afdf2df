#include "muoncore/data/chat_template.h"

#include <gmock/gmock.h>

#include "tests/data/tiny_tokenizer.h"

namespace muoncore::data {
namespace {

using ::testing::HasSubstr;

// Templates in the manner of the families, as they stand in files: in Jinja a newline is the escape
// \n.
constexpr const char* kChatMl =
    R"({% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %})";
constexpr const char* kWithSystem =
    R"({% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% else %}{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{% endif %})";
constexpr const char* kLlama3 =
    R"({{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %})";

class ChatTemplateTest : public TemporaryFolder {
 protected:
  std::unique_ptr<Tokenizer> tokenizer(const std::string& jinja,
                                       std::vector<std::string> added = {
                                           "<|im_start|>", "<|im_end|>", "<|begin_of_text|>",
                                           "<|start_header_id|>", "<|end_header_id|>",
                                           "<|eot_id|>"}) {
    write("tokenizer.json", tiny_tokenizer_json({}, added).dump());
    write("tokenizer_config.json", nlohmann::json({{"chat_template", jinja}}).dump());
    return load_tokenizer(folder_);
  }
  std::string prompt(const std::string& jinja, const std::vector<Message>& messages,
                     const std::string& name = "auto") {
    auto t = tokenizer(jinja);
    return t->decode(encode_chat_prompt(resolve_chat_template(name, *t), *t, messages), false);
  }
  std::string refusal(const std::string& jinja, const std::string& name = "auto") {
    auto t = tokenizer(jinja);
    return error_of([&] { resolve_chat_template(name, *t); });
  }
};

const std::vector<Message> kUser = {{"user", " hi "}};
const std::vector<Message> kTalk = {
    {"system", "S"}, {"user", "a"}, {"assistant", " b "}, {"user", "c"}};

TEST_F(ChatTemplateTest, ChatMl) {
  EXPECT_EQ(prompt(kChatMl, kUser), "<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(prompt(kChatMl, kTalk),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>"
            "assistant\n b <|im_end|>\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ChatTemplateTest, TheTemplatesOwnSystemTurnStandsInWhereThereIsNone) {
  EXPECT_EQ(prompt(kWithSystem, kUser),
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\n hi "
            "<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT(prompt(kWithSystem, kTalk),
              ::testing::StartsWith("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na"));
  EXPECT_THAT(prompt(kWithSystem, kUser, "chatml"), ::testing::StartsWith("<|im_start|>user"));
}

TEST_F(ChatTemplateTest, Llama3TrimsContents) {
  EXPECT_EQ(prompt(kLlama3, kUser),
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST_F(ChatTemplateTest, TargetsAreAssistantTurnsWithTheirEnd) {
  auto t = tokenizer(kChatMl);
  ChatTemplate chat = resolve_chat_template("auto", *t);
  SftExample example = encode_chat(
      chat, *t, {{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "de"}});
  std::vector<int64_t> targets;
  for (size_t i = 0; i < example.ids.size(); ++i)
    if (example.loss_mask[i]) targets.push_back(example.ids[i]);
  EXPECT_EQ(t->decode(targets, false), "b<|im_end|>de<|im_end|>");
  EXPECT_EQ(t->decode(example.ids, false),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>"
            "user\nc<|im_end|>\n"
            "<|im_start|>assistant\nde<|im_end|>\n");
  EXPECT_EQ(end_of_turn(chat, *t), t->token_id("<|im_end|>"));
}

TEST_F(ChatTemplateTest, PromptsAreThePrefixOfWhatTrains) {
  for (const char* jinja : {kChatMl, kWithSystem, kLlama3}) {
    auto t = tokenizer(jinja);
    ChatTemplate chat = resolve_chat_template("auto", *t);
    auto talk = kTalk;
    std::vector<int64_t> prompt = encode_chat_prompt(chat, *t, talk);
    talk.push_back({"assistant", "done"});
    SftExample example = encode_chat(chat, *t, talk);
    ASSERT_GT(example.ids.size(), prompt.size());
    EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), example.ids.begin()));
    EXPECT_EQ(example.loss_mask[prompt.size() - 1], 0);
    EXPECT_EQ(example.loss_mask[prompt.size()], 1);
  }
}

TEST_F(ChatTemplateTest, OtherTemplatesAreRefusedWithTheWayOut) {
  const std::string way_out = "set chat_template to chatml or llama3";
  EXPECT_THAT(refusal("{{ messages[0].content }}"), HasSubstr(way_out));
  EXPECT_THAT(refusal(""), HasSubstr(way_out));
  EXPECT_THAT(refusal(std::string(kChatMl) + "<think>"), HasSubstr("'<think>'"));
  EXPECT_THAT(refusal(std::string(kLlama3) + "Cutting Knowledge Date"),
              HasSubstr("Cutting Knowledge Date"));
  EXPECT_THAT(refusal(std::string(kLlama3) + kChatMl), HasSubstr("neither"));
  EXPECT_THAT(refusal(std::string(kWithSystem) + R"('<|im_start|>system\nOther.<|im_end|>')"),
              HasSubstr("2 different system turns"));
  EXPECT_THAT(refusal(kChatMl, "chat-ml"), HasSubstr("allowed: auto, chatml, llama3"));
  auto t = tokenizer(kChatMl, {"<|im_start|>"});
  EXPECT_THAT(error_of([&] { resolve_chat_template("auto", *t); }), HasSubstr("'<|im_end|>'"));
  EXPECT_THAT(error_of([&] { resolve_chat_template("llama3", *t); }),
              HasSubstr("'<|begin_of_text|>'"));
}

TEST_F(ChatTemplateTest, WhereTheTemplateIsFound) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}]})");
  EXPECT_EQ(read_chat_template(folder_), "y");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "x"}]})");
  EXPECT_THAT(error_of([&] { read_chat_template(folder_); }), HasSubstr("named 'default'"));
  write("chat_template.jinja", "z");
  EXPECT_EQ(read_chat_template(folder_), "z");
  EXPECT_EQ(read_chat_template(folder_ / "absent"), "");
}

TEST(ReadMessages, FaultsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "FILE:3: messages must be a list, not an object"},
      {"[]", "there is no message"},
      {"[1]", "FILE:3: messages[0] must be an object"},
      {R"([{"role": "user"}])", "messages[0] has no key 'content'"},
      {R"([{"content": "x"}])", "messages[0] has no key 'role'"},
      {R"([{"role": "user", "content": null}])", "messages[0].content must be a string, not null"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])",
       "messages[0].content must be a string, not a list"},
      {R"([{"role": "tool", "content": "x"}])", "messages[0].role is \"tool\""},
      {R"([{"role": "user", "content": "x"}, {"role": "system", "content": "x"}])",
       "messages[1].role is \"system\""},
      {R"([{"role": "user", "content": "x", "tool_calls": []}])", "'tool_calls'"},
  };
  for (const auto& [text, message] : cases) {
    nlohmann::json json = nlohmann::json::parse(text);
    EXPECT_THAT(error_of([&] { read_messages(JsonNode(json, "FILE:3", "messages")); }),
                HasSubstr(message));
  }
}

}  // namespace
}  // namespace muoncore::data
