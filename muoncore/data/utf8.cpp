#include "muoncore/data/utf8.h"

#include "muoncore/core/check.h"

namespace muoncore::data {
namespace {

// Rows of table 3-7: how many bytes follow a first byte, and which second bytes are allowed.
struct Lead {
  unsigned first, last;
  int following;
  unsigned second_low, second_high;
};
constexpr Lead kLeads[] = {
    {0xC2, 0xDF, 1, 0x80, 0xBF}, {0xE0, 0xE0, 2, 0xA0, 0xBF}, {0xE1, 0xEC, 2, 0x80, 0xBF},
    {0xED, 0xED, 2, 0x80, 0x9F}, {0xEE, 0xEF, 2, 0x80, 0xBF}, {0xF0, 0xF0, 3, 0x90, 0xBF},
    {0xF1, 0xF3, 3, 0x80, 0xBF}, {0xF4, 0xF4, 3, 0x80, 0x8F},
};

const Lead* find_lead(unsigned byte) {
  for (const Lead& lead : kLeads)
    if (byte >= lead.first && byte <= lead.last) return &lead;
  return nullptr;
}

}  // namespace

Utf8Step utf8_step(std::string_view text, size_t position) {
  auto byte = [&](size_t offset) { return static_cast<unsigned char>(text[position + offset]); };
  unsigned first = byte(0);
  if (first < 0x80) return {Utf8Step::kCharacter, 1, first};
  const Lead* lead = find_lead(first);
  if (!lead) return {Utf8Step::kInvalid, 1};
  char32_t code = first & (0x3F >> lead->following);
  for (int k = 1; k <= lead->following; ++k) {
    size_t length = static_cast<size_t>(k);
    if (position + length == text.size()) return {Utf8Step::kCutOff, length};
    unsigned next = byte(length);
    unsigned low = k == 1 ? lead->second_low : 0x80;
    unsigned high = k == 1 ? lead->second_high : 0xBF;
    if (next < low || next > high) return {Utf8Step::kInvalid, length};
    code = (code << 6) | (next & 0x3F);
  }
  return {Utf8Step::kCharacter, static_cast<size_t>(lead->following) + 1, code};
}

size_t find_invalid_utf8(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    Utf8Step step = utf8_step(text, position);
    if (step.kind != Utf8Step::kCharacter) return position;
    position += step.length;
  }
  return std::string_view::npos;
}

void check_utf8(std::string_view text, std::string_view what) {
  size_t position = find_invalid_utf8(text);
  if (position == std::string_view::npos) return;
  fail("{} is not valid UTF-8: byte 0x{:02X} at position {}", what,
       static_cast<unsigned char>(text[position]), position);
}

std::string utf8_lossy(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t position = 0; position < bytes.size();) {
    Utf8Step step = utf8_step(bytes, position);
    if (step.kind == Utf8Step::kCharacter)
      text.append(bytes.substr(position, step.length));
    else
      text.append("\xEF\xBF\xBD");
    position += step.length;
  }
  return text;
}

size_t utf8_settled_prefix(std::string_view bytes) {
  for (size_t position = 0; position < bytes.size();) {
    Utf8Step step = utf8_step(bytes, position);
    if (step.kind == Utf8Step::kCutOff) return position;
    position += step.length;
  }
  return bytes.size();
}

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

}  // namespace muoncore::data
