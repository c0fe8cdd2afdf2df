#include "muoncore/data/regex.h"

#include <gtest/gtest.h>

#include "tests/data/tiny_tokenizer.h"

namespace muoncore::data {
namespace {

std::vector<std::string> cut(const std::string& pattern, std::string_view text) {
  std::vector<std::string> pieces;
  for (const Regex::Piece& piece : Regex(pattern, "here").cut(text))
    pieces.push_back(fmt::format("{}{}", piece.is_match ? '+' : '-',
                                 text.substr(piece.begin, piece.end - piece.begin)));
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(Regex, MatchesAndGapsCoverTheText) {
  EXPECT_EQ(cut(R"(\p{L}+)", "ab, c"), (Pieces{"+ab", "-, ", "+c"}));
  EXPECT_EQ(cut(R"(\p{L}+)", ""), Pieces{});
  EXPECT_EQ(cut(R"(x)", "abc"), Pieces{"-abc"});
  EXPECT_EQ(cut(R"(\s+(?!\S)|\s+)", "a   b"), (Pieces{"-a", "+  ", "+ ", "-b"}));
  EXPECT_EQ(cut(R"(\p{N}{1,3})", "1234567"), (Pieces{"+123", "+456", "+7"}));
  EXPECT_EQ(cut(R"(x*)", "abxxc"), (Pieces{"-ab", "+xx", "-c"}));  // empty matches are none
}

TEST(Regex, MongolianVowelSeparatorIsNoSpace) {
  std::string text =
      "a\xE1\xA0\x8E"
      "b\xC2\xA0";  // U+180E, U+00A0
  EXPECT_EQ(cut(R"(\s)", text), (Pieces{"-a\xE1\xA0\x8E"
                                        "b",
                                        "+\xC2\xA0"}));
  EXPECT_EQ(cut(R"([^\s]+)", text), (Pieces{"+a\xE1\xA0\x8E"
                                            "b",
                                            "-\xC2\xA0"}));
  EXPECT_EQ(cut(R"(\S+)", text), (Pieces{"+a\xE1\xA0\x8E"
                                         "b",
                                         "-\xC2\xA0"}));
}

TEST(Regex, AMillionCharactersNeedNoRecursion) {
  std::string text(1000000, 'a');
  EXPECT_EQ(Regex(R"((?:\p{L}|\p{N})+|\s+(?!\S)|\s+)", "here").cut(text).size(), 1u);
  std::string spaces(1000000, ' ');
  EXPECT_EQ(Regex(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", "here").cut(spaces + "x").size(), 3u);
}

TEST(Regex, WhatOnigurumaReadsOtherwiseIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"^a", "'^'"},         {"a$", "'$'"},           {"a.b", "'.'"},
      {R"(\w+)", R"('\w')"}, {R"(\bx)", R"('\b')"},   {R"(\p{N}{1,3}+)", "'{1,3}+'"},
      {"a{2}?", "'{2}?'"},   {"a{,3}", "'{'"},        {"[a[b]]", "'[ within ['"},
      {"[a&&b]", "'&&'"},    {R"([\S])", R"('\S')"},  {"(?i)a", "'(?i'"},
      {"(?<n>a)", "'(?<'"},  {"[a", "'[ without ]'"}, {"a\\", "'\\'"},
      {R"(\pL)", R"('\p')"}, {"[]a]", "'[]'"},
  };
  for (const auto& [pattern, construct] : cases) {
    std::string message = error_of([&] { Regex(pattern, "FILE: pre_tokenizer"); });
    EXPECT_TRUE(message.starts_with("FILE: pre_tokenizer: the pattern ")) << message;
    EXPECT_NE(message.find(construct), std::string::npos) << pattern << ": " << message;
  }
  EXPECT_NE(error_of([] { Regex("(a", "FILE"); }).find("faulty"), std::string::npos);
  EXPECT_NE(error_of([] { Regex(R"(\p{Nonsense})", "FILE"); }).find("faulty"), std::string::npos);
}

}  // namespace
}  // namespace muoncore::data
