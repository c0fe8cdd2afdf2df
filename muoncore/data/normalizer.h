// tokenizer.json's `normalizer`: null, NFC, or a Sequence of these. Others are refused by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "muoncore/data/json_node.h"

namespace muoncore::data {

// NFC as Hugging Face's `tokenizers` computes it, which is that of Unicode 9: characters that came
// later neither compose nor change places.
class Normalizer {
 public:
  explicit Normalizer(const std::optional<JsonNode>& node);
  std::string apply(std::string_view text) const;  // text: valid UTF-8

 private:
  bool nfc_ = false;
};

}  // namespace muoncore::data
