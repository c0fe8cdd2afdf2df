// tokenizer.json's `added_tokens`: found in a text before anything else, and never cut by BPE.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muoncore/data/json_node.h"

namespace muoncore::data {

struct AddedToken {
  int64_t id;
  std::string content;
  bool special;     // left out by decode(skip_special_tokens)
  bool normalized;  // looked for in the normalized text instead of the raw one
  bool lstrip;      // takes the white space on its left along
  bool rstrip;
};

// Reads the list; refuses single_word, an empty or repeated content and unknown keys.
std::vector<AddedToken> read_added_tokens(const JsonNode& list);

// Finds tokens in texts: leftmost first, and the longest of those that begin there.
class AddedTokenFinder {
 public:
  void add(const AddedToken& token, std::string_view pattern);

  struct Segment {
    std::string_view text;
    std::optional<int64_t> id;  // a token, else text between tokens
  };
  // In order; none without text.
  std::vector<Segment> cut(std::string_view text) const;

 private:
  struct Node {
    std::map<unsigned char, size_t> next;
    const AddedToken* token = nullptr;
  };
  const AddedToken* longest_at(std::string_view text, size_t position, size_t* length) const;
  std::vector<Node> nodes_{1};  // a trie over bytes; nodes_[0] is its root
};

}  // namespace muoncore::data
