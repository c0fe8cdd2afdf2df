#include "muoncore/data/char_tokenizer.h"

#include <gmock/gmock.h>

#include "tests/data/tiny_tokenizer.h"

namespace muoncore::data {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

TEST(CharTokenizer, ThirtyTwoTokens) {
  CharTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocab_size(), 32);
  EXPECT_EQ(tokenizer.encode("0+9=", true), (Ids{1, 3, 13, 12, 17}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.decode({1, 3, 13, 12, 17, 2, 0}), "0+9=");
  EXPECT_EQ(tokenizer.decode({1, 3, 2, 0}, false), "<bos>0<eos><pad>");
  EXPECT_EQ(tokenizer.decode({32, 99}), "");
  EXPECT_EQ(tokenizer.token_id("<eos>"), 2);
  EXPECT_EQ(tokenizer.token_id("="), 17);
  EXPECT_EQ(tokenizer.token_id("<"), 26);
  EXPECT_EQ(tokenizer.token_id("ab"), std::nullopt);
  EXPECT_EQ(tokenizer.special().stop, Ids{2});
  EXPECT_EQ(tokenizer.padding_id(), 0);
}

TEST(CharTokenizer, ForeignCharactersAreRefusedWithTheirPosition) {
  CharTokenizer tokenizer;
  EXPECT_THAT(error_of([&] { tokenizer.encode("12a"); }), HasSubstr("byte 0x61 at position 2"));
  EXPECT_THROW(tokenizer.encode("\xC3\xA9"), Error);
  EXPECT_THROW(tokenizer.encode(std::string_view("\0", 1)), Error);
  EXPECT_THROW(tokenizer.decode({-1}), Error);
}

using SavedCharTokenizer = TemporaryFolder;

TEST_F(SavedCharTokenizer, IsFoundByLoadTokenizer) {
  CharTokenizer("ab\n").save(folder_);
  auto loaded = load_tokenizer(folder_);
  EXPECT_EQ(loaded->vocab_size(), 6);
  EXPECT_EQ(loaded->encode("b\na", true), (Ids{1, 4, 5, 3}));
}

TEST_F(SavedCharTokenizer, FaultyFilesAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not valid JSON"},
      {"{}", "no key 'type'"},
      {R"({"type": "words", "alphabet": "a"})", "type is \"words\""},
      {R"({"type": "characters"})", "no key 'alphabet'"},
      {R"({"type": "characters", "alphabet": 3})", "alphabet must be a string, not a number"},
      {R"({"type": "characters", "alphabet": ""})", "is empty"},
      {R"({"type": "characters", "alphabet": "aba"})", "'a' twice"},
      {R"({"type": "characters", "alphabet": "a\u00e9"})", "byte 0xC3 at position 1"},
      {R"({"type": "characters", "alphabet": "a", "more": 1})", "'more'"},
  };
  for (const auto& [bytes, message] : cases) {
    write("char_tokenizer.json", bytes);
    std::string error = error_of([&] { load_tokenizer(folder_); });
    EXPECT_THAT(error, HasSubstr(message));
    EXPECT_THAT(error, HasSubstr("char_tokenizer.json"));
  }
}

}  // namespace
}  // namespace muoncore::data
