// BOS, EOS, padding and stop ids of a model folder.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "muoncore/data/tokenizer.h"

namespace muoncore::data {

// The tokens named by tokenizer_config.json (bos_token, eos_token, pad_token: a string or an object
// with `content`), and the eos_token_id (one or a list) of generation_config.json, or of
// config.json where the former has none. A missing file names nothing. Throws on a token that
// `token_id` does not know, and on an id outside [0, vocab_size) in a file.
SpecialIds read_special_ids(
    const std::filesystem::path& folder,
    const std::function<std::optional<int64_t>(const std::string&)>& token_id);

}  // namespace muoncore::data
