#include "muoncore/data/bpe_model.h"

#include <queue>

#include "muoncore/core/check.h"
#include "muoncore/data/utf8.h"

namespace muoncore::data {
namespace {

constexpr size_t kCachedWords = 1 << 16;  // then no new ones: bounded memory
constexpr size_t kCachedWordBytes = 64;
constexpr int64_t kMostTokens = 1 << 24;  // an id beyond is a damaged file, not a vocabulary

bool is_printable_latin1(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The alphabet both ways: code point of each byte, and byte of each code point (-1: none).
struct Alphabet {
  std::array<char32_t, 256> code_of;
  std::array<int, 0x144> byte_of;
  Alphabet() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      code_of[byte] = is_printable_latin1(byte) ? byte : next++;
      byte_of[code_of[byte]] = static_cast<int>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  for (unsigned char byte : bytes) {
    char32_t code = alphabet().code_of[byte];
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0 | (code >> 6));
      text += static_cast<char>(0x80 | (code & 0x3F));
    }
  }
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  for (size_t position = 0; position < text.size();) {
    Utf8Step step = utf8_step(text, position);
    if (step.kind != Utf8Step::kCharacter || step.code >= alphabet().byte_of.size())
      return std::nullopt;
    int byte = alphabet().byte_of[step.code];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    position += step.length;
  }
  return bytes;
}

BpeModel::BpeModel(const JsonNode& node) {
  if (std::optional<JsonNode> type = node.find("type"); type && type->text() != "BPE")
    type->refuse("only BPE is supported");
  node.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
             "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (auto dropout = node.find("dropout"); dropout && dropout->value() != 0)
    dropout->refuse("dropout is not supported; null is");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (auto affix = node.find(key); affix && !affix->text().empty())
      affix->refuse("not supported in a byte-level tokenizer; null is");
  if (node.flag_or("byte_fallback", false))
    node.at("byte_fallback").refuse("byte_fallback is not supported");
  ignore_merges_ = node.flag_or("ignore_merges", false);
  read_vocabulary(node.at("vocab"));
  read_merges(node.at("merges"));
}

void BpeModel::read_vocabulary(const JsonNode& node) {
  if (!node.value().is_object() || node.value().empty())
    node.wrong("an object with at least one token");
  for (const auto& [token, value] : node.value().items()) {
    auto refuse = [&](const char* why) {
      fail("{}: the token '{}' has the id {}: {}", node.place(), token, value.dump(), why);
    };
    if (!value.is_number_integer() || value < 0) refuse("an id is an integer of at least 0");
    if (value >= kMostTokens) refuse("beyond any vocabulary");
    auto id = value.get<size_t>();
    if (id >= bytes_of_.size()) bytes_of_.resize(id + 1);
    if (bytes_of_[id]) refuse("another token has it, too");
    bytes_of_[id] = from_byte_level(token).value_or(token);
    id_of_.emplace(token, static_cast<int32_t>(id));
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    auto found = id_of_.find(to_byte_level(std::string(1, static_cast<char>(byte))));
    byte_id_[byte] = found == id_of_.end() ? -1 : found->second;
  }
}

void BpeModel::read_merges(const JsonNode& node) {
  if (!node.value().is_array()) node.wrong("a list");
  int32_t rank = 0;
  for (const nlohmann::json& item : node.value()) {
    auto refuse = [&](std::string_view why) {
      fail("{}[{}] is {}: {}", node.place(), rank, item.dump(), why);
    };
    std::string left, right;
    if (item.is_string()) {
      const std::string& both = item.get_ref<const std::string&>();
      size_t space = both.find(' ');
      if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos)
        refuse("a merge is two tokens with one space between");
      left = both.substr(0, space);
      right = both.substr(space + 1);
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      left = item[0].get<std::string>();
      right = item[1].get<std::string>();
    } else {
      refuse("a merge is a string 'a b' or a list of two strings");
    }
    auto a = id_of_.find(left), b = id_of_.find(right), both = id_of_.find(left + right);
    for (const auto& [found, token] :
         {std::pair(a, left), std::pair(b, right), std::pair(both, left + right)})
      if (found == id_of_.end()) refuse(fmt::format("'{}' is not in the vocabulary", token));
    merges_[pair_key(a->second, b->second)] = {rank++, both->second};
  }
}

std::optional<int64_t> BpeModel::token_id(const std::string& token) const {
  auto found = id_of_.find(token);
  if (found == id_of_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string_view> BpeModel::bytes(int64_t id) const {
  if (id < 0 || id >= vocab_size() || !bytes_of_[static_cast<size_t>(id)]) return std::nullopt;
  return *bytes_of_[static_cast<size_t>(id)];
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeModel::encode_word(std::string_view word, std::vector<int64_t>& ids) const {
  std::string key(word);
  if (word.size() <= kCachedWordBytes) {
    std::lock_guard lock(cache_mutex_);
    if (auto found = cache_.find(key); found != cache_.end()) {
      ids.insert(ids.end(), found->second.begin(), found->second.end());
      return;
    }
  }
  std::vector<int32_t> word_ids;
  auto whole = ignore_merges_ ? id_of_.find(to_byte_level(word)) : id_of_.end();
  if (whole != id_of_.end())
    word_ids.push_back(whole->second);
  else
    merge_word(word, word_ids);
  ids.insert(ids.end(), word_ids.begin(), word_ids.end());
  if (word.size() > kCachedWordBytes) return;
  std::lock_guard lock(cache_mutex_);
  if (cache_.size() < kCachedWords) cache_.emplace(std::move(key), std::move(word_ids));
}

void BpeModel::merge_word(std::string_view word, std::vector<int32_t>& ids) const {
  check(word.size() < INT32_MAX, "a word of {} bytes is too long for the tokenizer", word.size());
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    auto byte = static_cast<unsigned char>(word[i]);
    check(byte_id_[byte] >= 0,
          "the tokenizer's vocabulary has no token for the byte 0x{:02X} of '{}'", byte,
          word.substr(0, 40));
    bool last = i + 1 == word.size();
    symbols.push_back({byte_id_[byte], static_cast<int32_t>(i) - 1,
                       last ? -1 : static_cast<int32_t>(i) + 1, true});
  }
  std::priority_queue<Candidate> candidates;
  auto consider = [&](int32_t left) {
    if (left < 0 || symbols[static_cast<size_t>(left)].next < 0) return;
    const Symbol& symbol = symbols[static_cast<size_t>(left)];
    if (const Merge* merge = find_merge(symbol.id, symbols[static_cast<size_t>(symbol.next)].id))
      candidates.push({merge->rank, left, merge->id});
  };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) consider(i);
  while (!candidates.empty()) {
    Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[static_cast<size_t>(best.left)];
    if (!left.alive || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    const Merge* merge = find_merge(left.id, right.id);
    if (!merge || merge->rank != best.rank) continue;  // the pair has changed since
    left.id = merge->id;
    left.next = right.next;
    right.alive = false;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (int32_t i = 0; i >= 0 && !symbols.empty(); i = symbols[static_cast<size_t>(i)].next)
    ids.push_back(symbols[static_cast<size_t>(i)].id);
}

}  // namespace muoncore::data
