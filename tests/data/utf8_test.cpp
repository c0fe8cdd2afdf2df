#include "muoncore/data/utf8.h"

#include <gtest/gtest.h>

#include "muoncore/core/check.h"

namespace muoncore::data {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

std::string replaced(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += kReplacement;
  return text;
}

TEST(Utf8, EveryScalarValueIsReadBackAndSurrogatesAreNot) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    std::string bytes;
    auto add = [&](char32_t byte) { bytes.push_back(static_cast<char>(byte)); };
    int following = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    const char32_t leads[] = {0x00, 0xC0, 0xE0, 0xF0};
    add(leads[following] | code >> (6 * following));
    for (int k = following - 1; k >= 0; --k) add(0x80 | (code >> (6 * k) & 0x3F));
    Utf8Step step = utf8_step(bytes, 0);
    bool surrogate = code >= 0xD800 && code < 0xE000;
    ASSERT_EQ(step.kind, surrogate ? Utf8Step::kInvalid : Utf8Step::kCharacter) << uint32_t(code);
    if (!surrogate) {
      ASSERT_EQ(step.code, code);
      ASSERT_EQ(step.length, bytes.size());
    }
  }
}

// Table 3-8 of the Unicode standard, and its neighbours.
TEST(Utf8, OneReplacementForEachMaximalPart) {
  EXPECT_EQ(utf8_lossy("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            std::string("a").append(replaced(3)) + "b" + replaced(1) + "c" + replaced(2) + "d");
  EXPECT_EQ(utf8_lossy("\xC0\xAF"), replaced(2));          // overlong
  EXPECT_EQ(utf8_lossy("\xE0\x80\x80"), replaced(3));      // overlong
  EXPECT_EQ(utf8_lossy("\xED\xA0\x80"), replaced(3));      // surrogate
  EXPECT_EQ(utf8_lossy("\xF4\x90\x80\x80"), replaced(4));  // beyond U+10FFFF
  EXPECT_EQ(utf8_lossy("\xF0\x9F\x99"), replaced(1));      // cut off
  EXPECT_EQ(utf8_lossy(""), "");
  EXPECT_EQ(utf8_lossy(std::string_view("\0x", 2)), std::string_view("\0x", 2));
}

TEST(Utf8, SettledPrefixEndsBeforeACutOffCharacter) {
  std::string emoji = "\xF0\x9F\x99\x82";
  for (size_t length = 1; length < 4; ++length)
    EXPECT_EQ(utf8_settled_prefix(std::string("ab").append(emoji, 0, length)), 2u);
  EXPECT_EQ(utf8_settled_prefix("ab" + emoji), 6u);
  EXPECT_EQ(utf8_settled_prefix("ab\xFF"), 3u);        // never a character
  EXPECT_EQ(utf8_settled_prefix("\xE1\x80\x61"), 3u);  // broken, not cut off
}

TEST(Utf8, InvalidTextIsRefusedWithItsPosition) {
  EXPECT_EQ(find_invalid_utf8("ok\xFFrest"), 2u);
  EXPECT_EQ(find_invalid_utf8("caf\xC3\xA9"), std::string_view::npos);
  try {
    check_utf8("caf\xC3", "line 3");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "line 3 is not valid UTF-8: byte 0xC3 at position 3");
  }
}

TEST(Utf8, WhiteSpaceIsUnicodes) {
  int count = 0;
  for (char32_t code = 0; code < 0x110000; ++code) count += is_white_space(code);
  EXPECT_EQ(count, 25);  // PropList.txt: White_Space has 25 code points
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_FALSE(is_white_space(0x200B));
}

}  // namespace
}  // namespace muoncore::data
