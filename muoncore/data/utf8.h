// UTF-8: validation, replacement of what is none, and Unicode's White_Space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muoncore::data {

// What begins at one byte of a text: a whole character, the beginning of one that the text's end
// cuts off, or neither.
struct Utf8Step {
  enum Kind { kCharacter, kCutOff, kInvalid } kind;
  size_t length;      // bytes: of the character, or of the maximal part of one (Unicode 14,
                      // section 3.9, table 3-7)
  char32_t code = 0;  // of a character
};
Utf8Step utf8_step(std::string_view text, size_t position);  // position < text.size()

// Position of the first byte that is not part of a whole character; npos when the text is valid.
size_t find_invalid_utf8(std::string_view text);

// Throws `Error` on invalid UTF-8: "<what> is not valid UTF-8: byte 0x.. at position N".
void check_utf8(std::string_view text, std::string_view what);

// Each maximal part that is no character becomes U+FFFD.
std::string utf8_lossy(std::string_view bytes);

// Length of the longest prefix whose utf8_lossy() does not depend on the bytes that may follow.
size_t utf8_settled_prefix(std::string_view bytes);

// Unicode's White_Space property. Not U+180E, which lost it in Unicode 6.3.
bool is_white_space(char32_t code);

}  // namespace muoncore::data
