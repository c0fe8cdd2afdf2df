// Byte-level BPE as tokenizer.json describes it (Hugging Face `tokenizers`, GPT-2's family: GPT-2,
// Llama-3, Qwen, SmolLM). Same ids as `tokenizers` 0.23 on texts over the code points of Unicode
// 14; regex.h says why newer ones may differ. A byte that the vocabulary has no token for throws
// (SmolLM2 lacks 0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1 and 0xF2), where `tokenizers` drops the
// character in silence. Whatever this build does not implement is refused by name when the file is
// read.
#pragma once

#include <memory>

#include "muoncore/data/added_tokens.h"
#include "muoncore/data/bpe_model.h"
#include "muoncore/data/normalizer.h"
#include "muoncore/data/pre_tokenizer.h"
#include "muoncore/data/tokenizer.h"

namespace muoncore::data {

class BpeTokenizer final : public Tokenizer {
 public:
  static std::unique_ptr<BpeTokenizer> load(const std::filesystem::path& folder);
  // `where` begins each message. Without companions: no special ids, no chat template, no save().
  BpeTokenizer(const nlohmann::json& tokenizer_json, const std::string& where);

  std::vector<int64_t> encode(std::string_view text,
                              bool add_special_tokens = false) const override;
  std::string token_bytes(int64_t id, bool skip_special_tokens = true) const override;
  std::optional<int64_t> token_id(std::string_view token) const override;
  int64_t vocab_size() const override { return vocab_size_; }
  const SpecialIds& special() const override { return special_; }
  const std::string& chat_template() const override { return chat_template_; }
  void save(const std::filesystem::path& folder) const override;

 private:
  void add_tokens(const JsonNode& list);
  void read_post_processor(const JsonNode& node);
  void read_template(const JsonNode& node);
  void encode_plain(std::string_view text, std::vector<int64_t>& ids) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  std::vector<AddedToken> added_;
  std::unordered_map<int64_t, const AddedToken*> added_by_id_;
  std::unordered_map<std::string, int64_t> added_id_;
  AddedTokenFinder in_raw_, in_normalized_;
  std::vector<int64_t> prefix_, suffix_;  // of the post-processor
  SpecialIds special_;
  std::string chat_template_;
  int64_t vocab_size_ = 0;
  std::vector<std::pair<std::string, std::string>> files_;  // name and bytes, for save()
};

}  // namespace muoncore::data
