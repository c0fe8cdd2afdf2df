#include "muoncore/data/tokenizer.h"

#include "muoncore/core/check.h"
#include "muoncore/data/bpe_tokenizer.h"
#include "muoncore/data/char_tokenizer.h"
#include "muoncore/data/utf8.h"

namespace muoncore::data {

std::string Tokenizer::decode(const std::vector<int64_t>& ids, bool skip_special_tokens) const {
  std::string bytes;
  for (int64_t id : ids) bytes += token_bytes(id, skip_special_tokens);
  return utf8_lossy(bytes);
}

int64_t Tokenizer::padding_id() const {
  const SpecialIds& ids = special();
  return ids.pad ? *ids.pad : ids.eos.value_or(0);
}

std::string StreamDecoder::push(int64_t id) {
  pending_ += tokenizer_.token_bytes(id, skip_special_tokens_);
  size_t settled = utf8_settled_prefix(pending_);
  std::string text = utf8_lossy(std::string_view(pending_).substr(0, settled));
  pending_.erase(0, settled);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = utf8_lossy(pending_);
  pending_.clear();
  return text;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  check(std::filesystem::is_directory(folder), "the tokenizer folder {} does not exist",
        folder.string());
  bool characters = std::filesystem::exists(folder / CharTokenizer::kFileName);
  bool bpe = std::filesystem::exists(folder / "tokenizer.json");
  check(!(characters && bpe),
        "{} has both {} and tokenizer.json; remove the one that is not the model's",
        folder.string(), CharTokenizer::kFileName);
  if (characters) return CharTokenizer::load(folder);
  if (bpe) return BpeTokenizer::load(folder);
  if (std::filesystem::exists(folder / "tokenizer.model"))
    fail(
        "{} has only a SentencePiece tokenizer.model, which is not supported; it needs a "
        "byte-level tokenizer.json",
        folder.string());
  fail("{} has no tokenizer: neither tokenizer.json nor {}", folder.string(),
       CharTokenizer::kFileName);
}

void check_vocabulary(const Tokenizer& tokenizer, int64_t model_vocab_size,
                      std::string_view model) {
  check(tokenizer.vocab_size() <= model_vocab_size,
        "the tokenizer has ids up to {}, but {} has only {} embedding rows: it is another model's "
        "tokenizer",
        tokenizer.vocab_size() - 1, model, model_vocab_size);
}

void check_ids(const std::vector<int64_t>& ids, int64_t model_vocab_size, std::string_view where) {
  for (size_t i = 0; i < ids.size(); ++i)
    check(ids[i] >= 0 && ids[i] < model_vocab_size,
          "{}: the token id {} at position {} is outside the model's vocabulary of {}", where,
          ids[i], i, model_vocab_size);
}

}  // namespace muoncore::data
