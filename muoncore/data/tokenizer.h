// Text to token ids and back. Two kinds: byte-level BPE read from a Hugging Face folder
// (bpe_tokenizer.h) and the character tokenizer of the toy tasks (char_tokenizer.h). Everything is
// const and may be called from many threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muoncore::data {

// Ids with a meaning of their own; absent where the tokenizer's files name none.
struct SpecialIds {
  std::optional<int64_t> bos;
  std::optional<int64_t> eos;
  std::optional<int64_t> pad;
  // every id that ends a generation (eos and those of generation_config.json), ascending
  std::vector<int64_t> stop;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Token ids of valid UTF-8 text (anything else throws, with the byte's position).
  // `add_special_tokens` adds what the tokenizer's own post-processor adds to a text (Llama-3: a
  // BOS in front; Qwen and SmolLM2: nothing).
  virtual std::vector<int64_t> encode(std::string_view text,
                                      bool add_special_tokens = false) const = 0;

  // The bytes that one token stands for, possibly a part of a UTF-8 character. Empty for an id that
  // has no token (models pad their vocabularies) and, with `skip_special_tokens`, for a special
  // one. A negative id throws.
  virtual std::string token_bytes(int64_t id, bool skip_special_tokens = true) const = 0;

  virtual std::optional<int64_t> token_id(std::string_view token) const = 0;
  virtual int64_t vocab_size() const = 0;  // the highest id plus one
  virtual const SpecialIds& special() const = 0;

  // The Jinja chat template of the tokenizer's files; empty where there is none.
  virtual const std::string& chat_template() const = 0;

  // Writes the files from which load_tokenizer makes this tokenizer again; each appears whole or
  // not at all.
  virtual void save(const std::filesystem::path& folder) const = 0;

  // Text of `ids`. Bytes that are no UTF-8 become U+FFFD, one for each maximal part of a character,
  // as Hugging Face's `tokenizers` does it.
  std::string decode(const std::vector<int64_t>& ids, bool skip_special_tokens = true) const;

  std::optional<int64_t> bos_id() const { return special().bos; }
  std::optional<int64_t> eos_id() const { return special().eos; }
  std::optional<int64_t> pad_id() const { return special().pad; }
  // What fills the right of a batch: pad, else eos, else 0. No mask ever selects it.
  int64_t padding_id() const;
};

// Decodes a growing sequence: the texts of all push() calls and finish() together equal decode() of
// all ids. A character whose bytes come from several tokens is held back until it is whole.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}
  std::string push(int64_t id);
  std::string finish();  // what was held back, as U+FFFD

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;
};

// The tokenizer of a model folder or of a saved run: char_tokenizer.json, or tokenizer.json with
// (if there) tokenizer_config.json, generation_config.json and config.json for the special ids.
// Throws `Error` with the file's name.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder);

// Throws when the tokenizer can produce an id that a model of `model_vocab_size` rows has not:
// another model's tokenizer.
void check_vocabulary(const Tokenizer& tokenizer, int64_t model_vocab_size, std::string_view model);

// Throws when an id lies outside [0, model_vocab_size); `where` says where they come from.
void check_ids(const std::vector<int64_t>& ids, int64_t model_vocab_size, std::string_view where);

}  // namespace muoncore::data
