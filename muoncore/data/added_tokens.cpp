#include "muoncore/data/added_tokens.h"

#include <set>

#include "muoncore/core/check.h"
#include "muoncore/data/utf8.h"

namespace muoncore::data {
namespace {

size_t white_space_prefix(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    Utf8Step step = utf8_step(text, end);
    if (!is_white_space(step.code)) break;
    end += step.length;
  }
  return end;
}

size_t without_white_space_suffix(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
    if (!is_white_space(utf8_step(text, begin).code)) break;
    end = begin;
  }
  return end;
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const JsonNode& list) {
  std::vector<AddedToken> tokens;
  std::set<std::string> seen;
  for (const JsonNode& node : list.items()) {
    node.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token{node.at("id").integer(),   node.at("content").text(),
                     node.at("special").flag(), node.at("normalized").flag(),
                     node.at("lstrip").flag(),  node.at("rstrip").flag()};
    if (token.id < 0) node.at("id").refuse("an id is not negative");
    if (token.content.empty()) node.at("content").refuse("an added token needs a text");
    if (!seen.insert(token.content).second) node.at("content").refuse("the token is there twice");
    if (node.at("single_word").flag())
      node.at("single_word").refuse("single_word is not supported");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenFinder::add(const AddedToken& token, std::string_view pattern) {
  size_t at = 0;
  for (unsigned char byte : pattern) {
    auto [entry, is_new] = nodes_[at].next.try_emplace(byte, nodes_.size());
    at = entry->second;
    if (is_new) nodes_.emplace_back();
  }
  nodes_[at].token = &token;
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t position,
                                               size_t* length) const {
  const AddedToken* found = nullptr;
  size_t at = 0;
  for (size_t end = position; end < text.size(); ++end) {
    auto entry = nodes_[at].next.find(static_cast<unsigned char>(text[end]));
    if (entry == nodes_[at].next.end()) break;
    at = entry->second;
    if (nodes_[at].token) {
      found = nodes_[at].token;
      *length = end + 1 - position;
    }
  }
  return found;
}

std::vector<AddedTokenFinder::Segment> AddedTokenFinder::cut(std::string_view text) const {
  std::vector<Segment> segments;
  size_t previous = 0;  // end of the last token
  for (size_t position = 0; position < text.size();) {
    size_t length = 0;
    const AddedToken* token = longest_at(text, position, &length);
    if (!token) {
      ++position;
      continue;
    }
    size_t begin = position;
    size_t end = position + length;
    if (token->lstrip)
      begin = previous + without_white_space_suffix(text.substr(previous, begin - previous));
    if (token->rstrip) end += white_space_prefix(text.substr(end));
    if (begin > previous)
      segments.push_back({text.substr(previous, begin - previous), std::nullopt});
    segments.push_back({text.substr(begin, end - begin), token->id});
    position = previous = end;
  }
  if (previous < text.size()) segments.push_back({text.substr(previous), std::nullopt});
  return segments;
}

}  // namespace muoncore::data
