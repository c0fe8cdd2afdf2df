#include "muoncore/data/chat_template.h"

#include <set>

#include "muoncore/core/check.h"

namespace muoncore::data {
namespace {

constexpr const char* kWayOut =
    "set chat_template to chatml or llama3 to say that the model was trained on that form";

struct Segment {
  std::string text;
  bool is_target;
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// System turns that the template writes as one literal: <|im_start|>system\nTEXT<|im_end|>, where
// \n may be an escape.
std::set<std::string> literal_system_turns(std::string_view jinja) {
  std::set<std::string> found;
  const std::string_view opening = "<|im_start|>system";
  for (size_t at = jinja.find(opening); at != std::string_view::npos;
       at = jinja.find(opening, at + 1)) {
    std::string_view rest = jinja.substr(at + opening.size());
    if (rest.starts_with("\\n"))
      rest.remove_prefix(2);
    else if (rest.starts_with("\n"))
      rest.remove_prefix(1);
    else
      continue;
    std::string_view text = rest.substr(0, rest.find("<|im_end|>"));
    if (text.size() < rest.size() && text.find_first_of("'\"{}\\") == std::string_view::npos)
      found.emplace(text);
  }
  return found;
}

ChatTemplate recognise(std::string_view jinja) {
  check(!jinja.empty(), "the tokenizer has no chat template; {}", kWayOut);
  // What known templates write beyond the plain form of their family.
  for (const char* other :
       {"<think>", "<|im_sep|>", "Cutting Knowledge Date", "strftime_now", "date_string"})
    check(!contains(jinja, other),
          "the tokenizer's chat template writes '{}', which is not supported; {}", other, kWayOut);
  bool chatml = contains(jinja, "<|im_start|>") && contains(jinja, "<|im_end|>");
  bool llama3 = contains(jinja, "<|start_header_id|>") && contains(jinja, "<|eot_id|>");
  check(chatml != llama3, "the tokenizer's chat template is neither chatml nor llama3; {}",
        kWayOut);
  if (llama3) return {ChatTemplate::kLlama3, ""};
  std::set<std::string> systems = literal_system_turns(jinja);
  check(systems.size() <= 1,
        "the tokenizer's chat template has {} different system turns of its own; {}",
        systems.size(), kWayOut);
  return {ChatTemplate::kChatMl, systems.empty() ? "" : *systems.begin()};
}

int64_t need_token(const Tokenizer& tokenizer, const char* token) {
  std::optional<int64_t> id = tokenizer.token_id(token);
  check(id.has_value(), "the chat template needs the token '{}', which the tokenizer has not",
        token);
  return *id;
}

std::string_view trimmed(std::string_view text) {
  const char* white = " \t\n\r\f\v";
  size_t begin = text.find_first_not_of(white);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(white) + 1 - begin);
}

std::string header(const ChatTemplate& chat, const std::string& role) {
  if (chat.family == ChatTemplate::kLlama3)
    return fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n", role);
  return fmt::format("<|im_start|>{}\n", role);
}

std::vector<Segment> render(const ChatTemplate& chat, const std::vector<Message>& messages) {
  bool llama3 = chat.family == ChatTemplate::kLlama3;
  std::vector<Segment> segments = {{llama3 ? "<|begin_of_text|>" : "", false}};
  auto add = [&](std::string_view text, bool is_target) {
    if (segments.back().is_target != is_target) segments.push_back({"", is_target});
    segments.back().text += text;
  };
  auto turn = [&](const std::string& role, const std::string& content) {
    bool is_target = role == "assistant";
    add(header(chat, role), false);
    add(llama3 ? trimmed(content) : std::string_view(content), is_target);
    add(llama3 ? "<|eot_id|>" : "<|im_end|>", is_target);
    if (!llama3) add("\n", false);
  };
  if (!chat.default_system.empty() && messages.front().role != "system")
    turn("system", chat.default_system);
  for (const Message& message : messages) turn(message.role, message.content);
  return segments;
}

}  // namespace

std::vector<Message> read_messages(const JsonNode& list) {
  std::vector<Message> messages;
  const std::vector<std::string> roles = {"system", "user", "assistant"};
  for (const JsonNode& node : list.items()) {
    node.only({"role", "content"});
    Message message{node.at("role").text(), node.at("content").text()};
    if (std::find(roles.begin(), roles.end(), message.role) == roles.end())
      node.at("role").refuse("a role is system, user or assistant");
    if (message.role == "system" && !messages.empty())
      node.at("role").refuse("a system message may only be the first");
    messages.push_back(std::move(message));
  }
  if (messages.empty()) list.refuse("there is no message");
  return messages;
}

std::string read_chat_template(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "chat_template.jinja"))
    return read_file(folder / "chat_template.jinja");
  std::filesystem::path path = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) return "";
  nlohmann::json json = parse_json(read_file(path), path.string());
  auto node = JsonNode(json, path.string()).find("chat_template");
  if (!node) return "";
  if (!node->value().is_array()) return node->text();
  for (const JsonNode& item : node->items())
    if (item.at("name").text() == "default") return item.at("template").text();
  node->refuse("none of its templates is named 'default'");
}

ChatTemplate resolve_chat_template(const std::string& name, const Tokenizer& tokenizer) {
  ChatTemplate chat;
  if (name == "auto")
    chat = recognise(tokenizer.chat_template());
  else if (name == "llama3")
    chat.family = ChatTemplate::kLlama3;
  else
    check(name == "chatml", "chat_template is '{}'; allowed: auto, chatml, llama3", name);
  if (chat.family == ChatTemplate::kLlama3) {
    for (const char* token :
         {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"})
      need_token(tokenizer, token);
  } else {
    for (const char* token : {"<|im_start|>", "<|im_end|>"}) need_token(tokenizer, token);
  }
  return chat;
}

int64_t end_of_turn(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  return need_token(tokenizer, chat.family == ChatTemplate::kLlama3 ? "<|eot_id|>" : "<|im_end|>");
}

std::vector<int64_t> encode_chat_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                        const std::vector<Message>& messages) {
  std::vector<Segment> segments = render(chat, messages);
  if (segments.back().is_target) segments.push_back({"", false});
  segments.back().text += header(chat, "assistant");
  std::vector<int64_t> ids;
  for (const Segment& segment : segments)
    for (int64_t id : tokenizer.encode(segment.text)) ids.push_back(id);
  return ids;
}

SftExample encode_chat(const ChatTemplate& chat, const Tokenizer& tokenizer,
                       const std::vector<Message>& messages) {
  SftExample example;
  for (const Segment& segment : render(chat, messages)) {
    std::vector<int64_t> ids = tokenizer.encode(segment.text);
    example.ids.insert(example.ids.end(), ids.begin(), ids.end());
    example.loss_mask.insert(example.loss_mask.end(), ids.size(), segment.is_target ? 1 : 0);
  }
  return example;
}

}  // namespace muoncore::data
