#include "muoncore/data/pre_tokenizer.h"

#include <fmt/format.h>

#include "muoncore/core/check.h"

namespace muoncore::data {
namespace {

// ByteLevel's own expression: that of GPT-2 (Radford et al. 2019, encoder.py), part of its
// definition in `tokenizers`.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

PreTokenizer::PreTokenizer(const std::optional<JsonNode>& node, const std::string& file) {
  if (node) add(*node);
  check(has_byte_level_,
        "{}: the pre_tokenizer has no ByteLevel; only byte-level tokenizers are supported", file);
}

void PreTokenizer::add(const JsonNode& node) {
  std::string type = node.at("type").text();
  if (has_byte_level_)
    node.refuse("nothing may follow ByteLevel, which leaves the text in an alphabet of its own");
  Stage stage;
  if (type == "Sequence") {
    node.only({"type", "pretokenizers"});
    for (const JsonNode& child : node.at("pretokenizers").items()) add(child);
    return;
  }
  if (type == "Split") return add_split(node);
  if (type == "Digits") {
    node.only({"type", "individual_digits"});
    stage.regex.emplace(node.flag_or("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)",
                        node.place());
  } else if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    stage.add_prefix_space = node.at("add_prefix_space").flag();
    if (node.flag_or("use_regex", true)) stage.regex.emplace(kByteLevelPattern, node.place());
    has_byte_level_ = true;
  } else {
    node.at("type").refuse("supported pre-tokenizers: Sequence, Split, Digits, ByteLevel");
  }
  stages_.push_back(std::move(stage));
}

void PreTokenizer::add_split(const JsonNode& node) {
  node.only({"type", "pattern", "behavior", "invert"});
  JsonNode pattern = node.at("pattern");
  pattern.only({"Regex"});
  std::string behavior = node.at("behavior").text();
  bool invert = node.at("invert").flag();
  Stage stage;
  stage.regex.emplace(pattern.at("Regex").text(), node.place());
  if (behavior ==
      "Removed") {  // what the pattern finds is a delimiter and goes; inverted: the rest does
    stage.keep_matches = invert;
    stage.keep_gaps = !invert;
  } else if (behavior != "Isolated") {
    node.at("behavior").refuse("supported: Isolated, Removed");
  }
  stages_.push_back(std::move(stage));
}

std::vector<std::string_view> PreTokenizer::cut(std::string_view text,
                                                std::deque<std::string>& arena) const {
  std::vector<std::string_view> words;
  if (!text.empty()) words.push_back(text);
  for (const Stage& stage : stages_) {
    std::vector<std::string_view> next;
    for (std::string_view word : words) {
      if (stage.add_prefix_space && word[0] != ' ')
        word = arena.emplace_back(fmt::format(" {}", word));
      if (!stage.regex) {
        next.push_back(word);
        continue;
      }
      for (const Regex::Piece& piece : stage.regex->cut(word))
        if (piece.is_match ? stage.keep_matches : stage.keep_gaps)
          next.push_back(word.substr(piece.begin, piece.end - piece.begin));
    }
    words = std::move(next);
  }
  return words;
}

}  // namespace muoncore::data
