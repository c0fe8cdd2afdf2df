#include "muoncore/data/bpe_tokenizer.h"

#include "muoncore/core/check.h"
#include "muoncore/data/chat_template.h"
#include "muoncore/data/special_ids.h"
#include "muoncore/data/utf8.h"
#include "muoncore/io/atomic_file.h"

namespace muoncore::data {
namespace {

// What a saved run needs besides tokenizer.json to be loaded with the same special ids and chat
// template.
constexpr const char* kCompanions[] = {"tokenizer_config.json", "generation_config.json",
                                       "chat_template.jinja"};

void check_decoder(const JsonNode& node) {
  std::string type = node.at("type").text();
  if (type == "ByteLevel")
    return node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (type != "Sequence") node.at("type").refuse("supported decoders: ByteLevel");
  node.only({"type", "decoders"});
  std::vector<JsonNode> decoders = node.at("decoders").items();
  if (decoders.size() != 1) node.at("decoders").refuse("supported: a sequence of one ByteLevel");
  check_decoder(decoders[0]);
}

void check_top(const JsonNode& root) {
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  for (const char* key : {"truncation", "padding"})
    if (auto node = root.find(key)) node->refuse("not supported here; set it to null");
  check_decoder(root.at("decoder"));
}

}  // namespace

std::unique_ptr<BpeTokenizer> BpeTokenizer::load(const std::filesystem::path& folder) {
  std::filesystem::path path = folder / "tokenizer.json";
  std::string bytes = read_file(path);
  auto tokenizer = std::make_unique<BpeTokenizer>(parse_json(bytes, path.string()), path.string());
  tokenizer->special_ = read_special_ids(
      folder, [&](const std::string& token) { return tokenizer->token_id(token); });
  tokenizer->chat_template_ = read_chat_template(folder);
  tokenizer->files_.emplace_back("tokenizer.json", std::move(bytes));
  for (const char* name : kCompanions)
    if (std::filesystem::exists(folder / name))
      tokenizer->files_.emplace_back(name, read_file(folder / name));
  return tokenizer;
}

BpeTokenizer::BpeTokenizer(const nlohmann::json& json, const std::string& where)
    : normalizer_((check_top(JsonNode(json, where)), JsonNode(json, where).find("normalizer"))),
      pre_tokenizer_(JsonNode(json, where).find("pre_tokenizer"), where),
      model_(JsonNode(json, where).at("model")) {
  JsonNode root(json, where);
  vocab_size_ = model_.vocab_size();
  if (auto list = root.find("added_tokens")) add_tokens(*list);
  if (auto post = root.find("post_processor")) read_post_processor(*post);
}

// A token of the vocabulary keeps its id; others follow the vocabulary in the order of the list.
// `tokenizers` numbers them so whatever the file says, so a file that says otherwise has two
// readings and is refused.
void BpeTokenizer::add_tokens(const JsonNode& list) {
  added_ = read_added_tokens(list);
  int64_t next = model_.size();
  for (size_t i = 0; i < added_.size(); ++i) {
    const AddedToken& token = added_[i];
    std::optional<int64_t> known = model_.token_id(token.content);
    int64_t expected = known.value_or(next);
    check(token.id == expected, "{}[{}]: the token '{}' has the id {}, but {} is {}", list.place(),
          i, token.content, token.id, known ? "its id in the vocabulary" : "the next free id",
          expected);
    next = std::max(next, token.id + 1);
    vocab_size_ = std::max(vocab_size_, token.id + 1);
    added_by_id_[token.id] = &token;
    added_id_[token.content] = token.id;
    if (token.normalized)
      in_normalized_.add(token, normalizer_.apply(token.content));
    else
      in_raw_.add(token, token.content);
  }
}

void BpeTokenizer::read_post_processor(const JsonNode& node) {
  std::string type = node.at("type").text();
  if (type == "Sequence") {
    node.only({"type", "processors"});
    for (const JsonNode& child : node.at("processors").items()) read_post_processor(child);
  } else if (type == "TemplateProcessing") {
    read_template(node);
  } else if (type != "ByteLevel") {  // ByteLevel moves offsets only, never ids
    node.at("type").refuse("supported post-processors: ByteLevel, TemplateProcessing, Sequence");
  }
}

void BpeTokenizer::read_template(const JsonNode& node) {
  node.only({"type", "single", "pair", "special_tokens"});
  check(prefix_.empty() && suffix_.empty(), "{}: more than one TemplateProcessing is not supported",
        node.place());
  JsonNode tokens = node.at("special_tokens");
  bool text_seen = false;
  for (const JsonNode& item : node.at("single").items()) {
    if (item.find("Sequence")) {
      if (text_seen) item.refuse("the text may stand in the template only once");
      text_seen = true;
      continue;
    }
    std::string name = item.at("SpecialToken").at("id").text();
    for (const JsonNode& id : tokens.at(name).at("ids").items()) {
      int64_t value = id.integer();
      if (value < 0 || value >= vocab_size_) id.refuse("not an id of this tokenizer");
      (text_seen ? suffix_ : prefix_).push_back(value);
    }
  }
  if (!text_seen) node.at("single").refuse("the template has no place for the text (a Sequence)");
}

void BpeTokenizer::encode_plain(std::string_view text, std::vector<int64_t>& ids) const {
  std::deque<std::string> arena;
  for (std::string_view word : pre_tokenizer_.cut(text, arena)) model_.encode_word(word, ids);
}

std::vector<int64_t> BpeTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  check_utf8(text, "the text");
  std::vector<int64_t> ids;
  if (add_special_tokens) ids = prefix_;
  for (const AddedTokenFinder::Segment& raw : in_raw_.cut(text)) {
    if (raw.id) {
      ids.push_back(*raw.id);
      continue;
    }
    std::string normalized = normalizer_.apply(raw.text);
    for (const AddedTokenFinder::Segment& segment : in_normalized_.cut(normalized)) {
      if (segment.id)
        ids.push_back(*segment.id);
      else
        encode_plain(segment.text, ids);
    }
  }
  if (add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

std::string BpeTokenizer::token_bytes(int64_t id, bool skip_special_tokens) const {
  check(id >= 0, "the token id {} is negative", id);
  auto added = added_by_id_.find(id);
  if (added == added_by_id_.end()) return std::string(model_.bytes(id).value_or(""));
  if (added->second->special && skip_special_tokens) return "";
  return from_byte_level(added->second->content).value_or(added->second->content);
}

std::optional<int64_t> BpeTokenizer::token_id(std::string_view token) const {
  std::string key(token);
  if (auto found = added_id_.find(key); found != added_id_.end()) return found->second;
  return model_.token_id(key);
}

void BpeTokenizer::save(const std::filesystem::path& folder) const {
  check(!files_.empty(), "a tokenizer that was not loaded from a folder cannot be saved to {}",
        folder.string());
  for (const auto& [name, bytes] : files_) {
    io::AtomicFile file(folder / name);
    file.write(std::string_view(bytes));
    file.commit();
  }
}

}  // namespace muoncore::data
