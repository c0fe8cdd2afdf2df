// Chats as token ids, for the families of templates that are built in. No Jinja runs here: the
// template in the tokenizer's files is only recognised, and one that renders anything else than the
// families below is refused.
//
//   chatml (Qwen2, Qwen2.5, SmolLM2), per turn: <|im_start|>ROLE\nCONTENT<|im_end|>\n
//     a system turn of the template's own stands in front where it names one and the chat has none
//   llama3 (Llama-3): <|begin_of_text|>, then per turn
//     <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>
//     CONTENT without white space at its ends
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "muoncore/data/json_node.h"
#include "muoncore/data/sft_data.h"
#include "muoncore/data/tokenizer.h"

namespace muoncore::data {

struct Message {
  std::string role;  // system (only first), user, assistant
  std::string content;
};

// A list of {"role": ..., "content": ...}, not empty, nothing else in it. Throws with the place.
std::vector<Message> read_messages(const JsonNode& list);

struct ChatTemplate {
  enum Family { kChatMl, kLlama3 } family = kChatMl;
  std::string default_system;  // chatml: what stands in front of a chat without a system turn;
                               // empty: nothing
};

// The Jinja text in a model folder: chat_template.jinja, else chat_template of
// tokenizer_config.json (of a list, the one named "default"); empty when there is none.
std::string read_chat_template(const std::filesystem::path& folder);

// By name (chatml, llama3), or with `auto` by what the tokenizer's own template writes. Throws when
// it is none of the families, or when the tokenizer lacks a token that the family needs.
ChatTemplate resolve_chat_template(const std::string& name, const Tokenizer& tokenizer);

// The token that ends a turn.
int64_t end_of_turn(const ChatTemplate& chat, const Tokenizer& tokenizer);

// Ids of the chat and the header of the assistant's turn that is to follow.
std::vector<int64_t> encode_chat_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer,
                                        const std::vector<Message>& messages);

// The whole chat; targets are the content and the end token of each assistant turn. What stands in
// front of a response is encoded apart from it, as it is when the response is generated.
SftExample encode_chat(const ChatTemplate& chat, const Tokenizer& tokenizer,
                       const std::vector<Message>& messages);

}  // namespace muoncore::data
