// The regular expressions of tokenizer.json. They are written for Oniguruma and run here on PCRE2
// (UTF, UCP, JIT). Only what both read in the same way is accepted; the rest is refused by name.
//
// `\s` is rewritten to Unicode's White_Space: PCRE2's own counts U+180E. Character properties are
// those of Unicode 14 (PCRE2 10.42), while `tokenizers` has newer ones: texts with code points that
// came later may be cut otherwise.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;

namespace muoncore::data {

// The PCRE2 form of an Oniguruma pattern. Throws `Error` (beginning with `where`) on a construct
// that the two read differently: anchors, `.`, \w, \b, classes within classes, possessive
// intervals, ...
std::string to_pcre2(std::string_view pattern, std::string_view where);

class Regex {
 public:
  Regex(std::string_view pattern, std::string_view where);

  struct Piece {
    size_t begin, end;  // bytes
    bool is_match;
  };
  // Cuts valid UTF-8 into matches and the gaps between them, in order, none empty.
  std::vector<Piece> cut(std::string_view text) const;

 private:
  std::shared_ptr<pcre2_real_code_8> code_;
};

}  // namespace muoncore::data
