// One token per character: the tokenizer of the toy tasks. Saved as char_tokenizer.json.
#pragma once

#include <array>

#include "muoncore/data/tokenizer.h"

namespace muoncore::data {

// Ids: 0 <pad>, 1 <bos>, 2 <eos>, then the alphabet (printable ASCII and newline, each character
// once). encode with add_special_tokens puts <bos> in front; a character outside the alphabet
// throws.
class CharTokenizer final : public Tokenizer {
 public:
  static constexpr int64_t kPad = 0, kBos = 1, kEos = 2, kFirstCharacter = 3;
  static constexpr const char* kFileName = "char_tokenizer.json";

  // 29 characters: with the special tokens a vocabulary of 32.
  explicit CharTokenizer(std::string alphabet = "0123456789+-*/=(),.:;?!<>_| \n");

  std::vector<int64_t> encode(std::string_view text,
                              bool add_special_tokens = false) const override;
  std::string token_bytes(int64_t id, bool skip_special_tokens = true) const override;
  std::optional<int64_t> token_id(std::string_view token) const override;
  int64_t vocab_size() const override {
    return kFirstCharacter + static_cast<int64_t>(alphabet_.size());
  }
  const SpecialIds& special() const override { return special_; }
  const std::string& chat_template() const override { return chat_template_; }
  void save(const std::filesystem::path& folder) const override;

  static std::unique_ptr<CharTokenizer> load(const std::filesystem::path& folder);

 private:
  std::string alphabet_;
  std::array<int64_t, 128> id_of_;  // -1: not in the alphabet
  SpecialIds special_;
  std::string chat_template_;  // empty: toy tasks have no chat
};

}  // namespace muoncore::data
