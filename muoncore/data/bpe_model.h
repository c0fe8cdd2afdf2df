// Byte-pair encoding over bytes: tokenizer.json's `model`.
//
// ByteLevel writes each byte as one printable character (GPT-2's bytes_to_unicode: printable
// Latin-1 as itself, the others from U+0100 on). Tokens are stored in that alphabet in the file,
// and as raw bytes here.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "muoncore/data/json_node.h"

namespace muoncore::data {

// Raw bytes -> ByteLevel's alphabet.
std::string to_byte_level(std::string_view bytes);
// ByteLevel's alphabet -> raw bytes; nothing when a character is not of that alphabet.
std::optional<std::string> from_byte_level(std::string_view text);

class BpeModel {
 public:
  // Merges are "a b" strings or ["a", "b"] pairs. Refused: another type than BPE, byte_fallback,
  // dropout, affixes of words, a merge whose parts or result are not in the vocabulary, an id that
  // is there twice.
  explicit BpeModel(const JsonNode& node);

  // Appends the ids of one word (raw bytes): of all adjacent pairs the one with the lowest rank
  // merges first, the leftmost of equals; O(n log n). Throws when the vocabulary lacks a byte of
  // the word.
  void encode_word(std::string_view word, std::vector<int64_t>& ids) const;

  std::optional<int64_t> token_id(const std::string& token) const;  // token as in the file
  // Raw bytes of a token; a token outside ByteLevel's alphabet: its text. Nothing: no such id.
  std::optional<std::string_view> bytes(int64_t id) const;
  int64_t size() const { return static_cast<int64_t>(id_of_.size()); }  // number of tokens
  int64_t vocab_size() const {
    return static_cast<int64_t>(bytes_of_.size());
  }  // the highest id plus one

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  struct Symbol {  // doubly linked, so that a merge costs no move
    int32_t id;
    int32_t previous, next;  // -1: none
    bool alive;
  };
  struct Candidate {
    int32_t rank, left, id;
    bool operator<(const Candidate& other) const {  // std::priority_queue pops the largest
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };

  void read_vocabulary(const JsonNode& node);
  void read_merges(const JsonNode& node);
  void merge_word(std::string_view word, std::vector<int32_t>& ids) const;
  const Merge* find_merge(int32_t left, int32_t right) const;

  std::unordered_map<std::string, int32_t> id_of_;
  std::vector<std::optional<std::string>> bytes_of_;
  std::unordered_map<uint64_t, Merge> merges_;
  std::array<int32_t, 256> byte_id_;
  bool ignore_merges_ = false;

  mutable std::mutex cache_mutex_;
  mutable std::unordered_map<std::string, std::vector<int32_t>> cache_;
};

}  // namespace muoncore::data
