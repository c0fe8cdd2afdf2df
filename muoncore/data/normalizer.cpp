#include "muoncore/data/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>

#include "muoncore/core/check.h"
#include "muoncore/data/utf8.h"

namespace muoncore::data {
namespace {

struct Range {
  char32_t first, last;
};

// Where utf8proc 2.8 (Unicode 15) and `tokenizers` 0.23 differ, found by comparing the two on every
// code point in the contexts of tests/python/test_tokenizer.py: combining characters that came
// after Unicode 9, U+11930 and U+11938 (a pair that composes), and U+11A7, which utf8proc drops
// behind a Hangul syllable. To `tokenizers` each of them is a character that composes with nothing
// on either side, so the texts around it are normalized apart.
constexpr Range kInert[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},
    {0x0C3C, 0x0C3C},   {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x11A7, 0x11A7},
    {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
    {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
};

bool is_inert(char32_t code) {
  const Range* range = std::lower_bound(std::begin(kInert), std::end(kInert), code,
                                        [](const Range& r, char32_t c) { return r.last < c; });
  return range != std::end(kInert) && range->first <= code;
}

std::string nfc(std::string_view text) {
  utf8proc_uint8_t* result = nullptr;
  utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  check(length >= 0, "NFC failed on a text of {} bytes: {}", text.size(), utf8proc_errmsg(length));
  std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(result, &std::free);
  return std::string(reinterpret_cast<const char*>(result), static_cast<size_t>(length));
}

bool is_nfc(const JsonNode& node) {
  std::string type = node.at("type").text();
  if (type == "NFC") {
    node.only({"type"});
    return true;
  }
  if (type != "Sequence") node.at("type").refuse("supported normalizers: NFC, Sequence");
  node.only({"type", "normalizers"});
  bool any = false;
  for (const JsonNode& child : node.at("normalizers").items()) any = is_nfc(child) || any;
  return any;
}

}  // namespace

Normalizer::Normalizer(const std::optional<JsonNode>& node) : nfc_(node && is_nfc(*node)) {}

std::string Normalizer::apply(std::string_view text) const {
  bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
  if (!nfc_ || ascii) return std::string(text);
  std::string result;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    Utf8Step step = utf8_step(text, at);
    if (is_inert(step.code)) {
      result += nfc(text.substr(begin, at - begin));
      result += text.substr(at, step.length);
      begin = at + step.length;
    }
    at += step.length;
  }
  return result + nfc(text.substr(begin));
}

}  // namespace muoncore::data
