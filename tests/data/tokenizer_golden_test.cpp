// Replays what tests/python/test_tokenizer.py recorded with Hugging Face's `tokenizers`:
// MUONCORE_TOKENIZER_CASES is a folder with one folder per tokenizer, each with tokenizer.json and
// cases.jsonl.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "muoncore/data/json_node.h"
#include "muoncore/data/tokenizer.h"

namespace muoncore::data {
namespace {

namespace fs = std::filesystem;

// Compares one recorded case; the first difference is told in full.
bool same(const Tokenizer& tokenizer, const nlohmann::json& entry) {
  auto text = entry.at("text").get<std::string>();
  auto expected = entry.at("ids").get<std::vector<int64_t>>();
  std::vector<int64_t> ids = tokenizer.encode(text, entry.at("special").get<bool>());
  EXPECT_EQ(ids, expected) << entry.at("text").dump(-1, ' ', /*ensure_ascii=*/true);
  auto to_decode = entry.at("decode_ids").get<std::vector<int64_t>>();
  std::string all = tokenizer.decode(to_decode, /*skip_special_tokens=*/false);
  EXPECT_EQ(all, entry.at("decoded").get<std::string>());
  EXPECT_EQ(tokenizer.decode(to_decode), entry.at("decoded_skip").get<std::string>());
  StreamDecoder decoder(tokenizer, /*skip_special_tokens=*/false);
  std::string streamed;
  for (int64_t id : to_decode) streamed += decoder.push(id);
  streamed += decoder.finish();
  EXPECT_EQ(streamed, all);
  return !::testing::Test::HasFailure();
}

TEST(TokenizerGolden, IdsAndTextsOfEveryCase) {
  const char* root = std::getenv("MUONCORE_TOKENIZER_CASES");
  if (!root)
    GTEST_SKIP() << "MUONCORE_TOKENIZER_CASES is not set; tests/python/test_tokenizer.py sets it";
  int64_t cases = 0;
  for (const fs::directory_entry& folder : fs::directory_iterator(root)) {
    SCOPED_TRACE(folder.path().filename().string());
    std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder.path());
    std::ifstream lines(folder.path() / "cases.jsonl");
    for (std::string line; std::getline(lines, line); ++cases)
      ASSERT_TRUE(same(*tokenizer, nlohmann::json::parse(line)));
  }
  RecordProperty("cases", static_cast<int>(cases));
  std::printf("%lld cases\n", static_cast<long long>(cases));
}

}  // namespace
}  // namespace muoncore::data
