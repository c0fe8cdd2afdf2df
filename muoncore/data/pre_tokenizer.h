// tokenizer.json's `pre_tokenizer`: from a text to the words that BPE may merge
// within.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muoncore/data/json_node.h"
#include "muoncore/data/regex.h"

namespace muoncore::data {

// ByteLevel, or a Sequence of Split (Regex; Isolated or Removed), Digits and, last, ByteLevel.
// Others are refused by name.
class PreTokenizer {
 public:
  explicit PreTokenizer(const std::optional<JsonNode>& node, const std::string& file);

  // Words are views of `text` or of strings in `arena` (where add_prefix_space made a new one); raw
  // bytes, not yet in ByteLevel's alphabet. None is empty.
  std::vector<std::string_view> cut(std::string_view text, std::deque<std::string>& arena) const;

 private:
  struct Stage {
    std::optional<Regex> regex;
    bool keep_matches = true;
    bool keep_gaps = true;
    bool add_prefix_space = false;
  };
  void add(const JsonNode& node);
  void add_split(const JsonNode& node);
  std::vector<Stage> stages_;
  bool has_byte_level_ = false;
};

}  // namespace muoncore::data
