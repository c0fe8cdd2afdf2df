// Semantics and refusals; agreement with Hugging Face's `tokenizers` is in
// tokenizer_golden_test.cpp.
#include "muoncore/data/bpe_tokenizer.h"

#include <gmock/gmock.h>

#include "muoncore/core/rng.h"
#include "tests/data/tiny_tokenizer.h"

namespace muoncore::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

Ids encode(const nlohmann::json& json, std::string_view text, bool special = false) {
  return BpeTokenizer(json, "FILE").encode(text, special);
}

TEST(BpeTokenizer, LowestRankMergesFirstAndTheLeftmostOfEquals) {
  auto json = tiny_tokenizer_json({{"b", "c"}, {"a", "b"}, {"a", "bc"}});
  EXPECT_EQ(encode(json, "abc"), Ids{258});  // bc, then a+bc; not ab+c
  EXPECT_EQ(encode(json, "ab"), Ids{257});
  auto doubles = tiny_tokenizer_json({{"a", "a"}});
  EXPECT_EQ(encode(doubles, "aaaaa"), (Ids{256, 256, 'a'}));
  EXPECT_EQ(encode(doubles, ""), Ids{});
}

TEST(BpeTokenizer, LongWordsMergeInLinearithmicTime) {
  auto json = tiny_tokenizer_json({{"a", "a"}, {"aa", "aa"}});
  Ids ids = encode(json, std::string(400003, 'a'));
  EXPECT_EQ(ids.size(), 100000u + 2u);
  EXPECT_EQ(ids.front(), 257);
  EXPECT_EQ(ids[100000], 256);
  EXPECT_EQ(ids.back(), 'a');
}

TEST(BpeTokenizer, IgnoreMergesTakesAWholeWordOfTheVocabulary) {
  auto json = tiny_tokenizer_json({{"a", "b"}, {"ab", "c"}});
  json["model"]["merges"] = nlohmann::json::array({"a b"});
  EXPECT_EQ(encode(json, "abc"), (Ids{256, 'c'}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode(json, "abc"), Ids{257});
}

TEST(BpeTokenizer, AddedTokensAreFoundFirstLongestAtTheLeftmostPlace) {
  auto json = tiny_tokenizer_json({}, {"<a>", "<a>b", "><"});
  EXPECT_EQ(encode(json, "x<a>b<a>"), (Ids{'x', 257, 256}));
  EXPECT_EQ(encode(json, "<a><"), (Ids{256, '<'}));  // <a> began further left than ><
  json["added_tokens"][0]["lstrip"] = json["added_tokens"][0]["rstrip"] = true;
  EXPECT_EQ(encode(json, "x \t<a>\n y"), (Ids{'x', 256, 'y'}));
}

TEST(BpeTokenizer, NormalizedAddedTokensAreFoundAfterNfc) {
  auto json = tiny_tokenizer_json({}, {"caf\xC3\xA9"});
  json["normalizer"] = {{"type", "NFC"}};
  const char* decomposed = "cafe\xCC\x81";
  EXPECT_EQ(encode(json, decomposed).size(), 5u);  // raw: not found
  json["added_tokens"][0]["normalized"] = true;
  EXPECT_EQ(encode(json, decomposed), Ids{256});
}

TEST(BpeTokenizer, SpecialTokensOfTheTemplate) {
  auto json = tiny_tokenizer_json({}, {"<s>", "</s>"});
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single",
                             {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                              {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}}},
                            {"pair", nlohmann::json::array()},
                            {"special_tokens",
                             {{"<s>", {{"id", "<s>"}, {"ids", {256}}, {"tokens", {"<s>"}}}},
                              {"</s>", {{"id", "</s>"}, {"ids", {257}}, {"tokens", {"</s>"}}}}}}};
  EXPECT_EQ(encode(json, "x", true), (Ids{256, 'x', 257}));
  EXPECT_EQ(encode(json, "x", false), Ids{'x'});
  EXPECT_EQ(encode(json, "", true), (Ids{256, 257}));
  json["post_processor"]["special_tokens"]["<s>"]["ids"] = {999};
  EXPECT_THAT(error_of([&] { BpeTokenizer(json, "FILE"); }),
              HasSubstr("not an id of this tokenizer"));
}

TEST(BpeTokenizer, DecodeSkipsSpecialTokensAndIdsWithoutToken) {
  BpeTokenizer tokenizer(tiny_tokenizer_json({}, {"<s>", "\xC3\xA9 x"}), "FILE");
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  EXPECT_EQ(tokenizer.decode({256, 'a', 5000, 'b'}), "ab");
  EXPECT_EQ(tokenizer.decode({256, 'a'}, false), "<s>a");
  EXPECT_EQ(tokenizer.decode({257}, false),
            "\xC3\xA9 x");  // a space is not of ByteLevel's alphabet: as it stands
  EXPECT_EQ(tokenizer.decode({0xC3, 0xA9, 0xC3}), "\xC3\xA9\xEF\xBF\xBD");
  EXPECT_THAT(error_of([&] { tokenizer.decode({-1}); }), HasSubstr("-1 is negative"));
}

TEST(BpeTokenizer, StreamingHoldsBackUnfinishedCharacters) {
  BpeTokenizer tokenizer(tiny_tokenizer_json({}), "FILE");
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x99), "");
  EXPECT_EQ(stream.push(0x82), "\xF0\x9F\x99\x82");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(BpeTokenizer, InvalidUtf8AndMissingBytesAreRefused) {
  auto json = tiny_tokenizer_json({});
  EXPECT_THAT(error_of([&] { encode(json, "ab\xFF"); }), HasSubstr("byte 0xFF at position 2"));
  json["model"]["vocab"].erase("q");
  EXPECT_THAT(error_of([&] { encode(json, "quit"); }),
              HasSubstr("no token for the byte 0x71 of 'quit'"));
  EXPECT_EQ(encode(json, "uit"), (Ids{'u', 'i', 't'}));
}

// One change to a good file, and what the message must hold.
struct Fault {
  const char* pointer;
  const char* value;  // JSON
  const char* message;
};
const Fault kFaults[] = {
    {"/normalizer", R"({"type":"Lowercase"})", "FILE: normalizer.type is \"Lowercase\""},
    {"/normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"NFKC"}]})",
     "normalizer.normalizers[1].type is \"NFKC\""},
    {"/pre_tokenizer", R"({"type":"Metaspace"})", "FILE: pre_tokenizer.type is \"Metaspace\""},
    {"/pre_tokenizer", "null", "no ByteLevel"},
    {"/pre_tokenizer",
     R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true}]})",
     "no ByteLevel"},
    {"/pre_tokenizer",
     R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false},{"type":"Digits"}]})",
     "nothing may follow ByteLevel"},
    {"/pre_tokenizer",
     R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"MergedWithNext","invert":false})",
     "MergedWithNext"},
    {"/pre_tokenizer",
     R"({"type":"Split","pattern":{"String":"a"},"behavior":"Isolated","invert":false})",
     "'String'"},
    {"/pre_tokenizer", R"({"type":"ByteLevel","add_prefix_space":"no"})",
     "pre_tokenizer.add_prefix_space must be true or false, not a string"},
    {"/pre_tokenizer/surprise", "1", "'surprise'"},
    {"/post_processor", R"({"type":"BertProcessing"})",
     "post_processor.type is \"BertProcessing\""},
    {"/decoder", R"({"type":"WordPiece"})", "decoder.type is \"WordPiece\""},
    {"/decoder", "null", "decoder must be an object, not null"},
    {"/truncation", R"({"max_length":3})", "truncation"},
    {"/padding", R"({"strategy":"BatchLongest"})", "padding"},
    {"/unheard", "1", "'unheard'"},
    {"/model/type", "\"Unigram\"", "FILE: model.type is \"Unigram\": only BPE"},
    {"/model/byte_fallback", "true", "byte_fallback"},
    {"/model/dropout", "0.1", "dropout"},
    {"/model/end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
    {"/model/vocab", "[]", "FILE: model.vocab must be an object"},
    {"/model/vocab", "{}", "model.vocab"},
    {"/model/vocab/a", "-1", "'a' has the id -1"},
    {"/model/vocab/a", "1.5", "'a' has the id 1.5"},
    {"/model/vocab/a", "98", "another token has it, too"},
    {"/model/vocab/a", "99999999999", "beyond any vocabulary"},
    {"/model/merges", "7", "FILE: model.merges must be a list, not a number"},
    {"/model/merges/0", "\"ab\"", "model.merges[0] is \"ab\""},
    {"/model/merges/0", "\"a b c\"", "two tokens with one space between"},
    {"/model/merges/0", R"(["a"])", "a list of two strings"},
    {"/model/merges/0", R"(["a","z"])", "'az' is not in the vocabulary"},
    {"/model/merges/0", R"(["nope","b"])", "'nope' is not in the vocabulary"},
    {"/added_tokens/0/id", "300", "the token '<s>' has the id 300, but the next free id is 257"},
    {"/added_tokens/0/id", "-1", "added_tokens[0].id is -1"},
    {"/added_tokens/0/content", "\"\"", "needs a text"},
    {"/added_tokens/0/content", "\"a\"", "its id in the vocabulary is 97"},
    {"/added_tokens/0/single_word", "true", "single_word is not supported"},
    {"/added_tokens/0/special", "1", "added_tokens[0].special must be true or false"},
};

TEST(BpeTokenizer, EachFaultIsNamed) {
  const nlohmann::json good = tiny_tokenizer_json({{"a", "b"}}, {"<s>"});
  EXPECT_EQ(encode(good, "ab<s>"), (Ids{256, 257}));
  for (const Fault& fault : kFaults) {
    nlohmann::json json = good;
    json[nlohmann::json::json_pointer(fault.pointer)] = nlohmann::json::parse(fault.value);
    EXPECT_THAT(error_of([&] { BpeTokenizer(json, "FILE"); }),
                AllOf(HasSubstr("FILE"), HasSubstr(fault.message)))
        << fault.pointer << " = " << fault.value;
  }
  for (const char* key : {"model", "decoder"}) {
    nlohmann::json json = good;
    json.erase(key);
    EXPECT_THAT(error_of([&] { BpeTokenizer(json, "FILE"); }),
                HasSubstr(fmt::format("no key '{}'", key)));
  }
}

using LoadTokenizer = TemporaryFolder;

TEST_F(LoadTokenizer, SpecialIdsComeFromTheCompanions) {
  write("tokenizer.json", tiny_tokenizer_json({}, {"<s>", "<e>", "<t>"}).dump());
  EXPECT_EQ(load_tokenizer(folder_)->special().stop, Ids{});
  EXPECT_EQ(load_tokenizer(folder_)->padding_id(), 0);
  write("config.json", R"({"eos_token_id": 257})");
  EXPECT_EQ(load_tokenizer(folder_)->eos_id(), 257);
  write("generation_config.json", R"({"eos_token_id": [258, 256]})");
  write(
      "tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": {"content": "<e>", "lstrip": false}, "pad_token": null})");
  auto tokenizer = load_tokenizer(folder_);
  EXPECT_EQ(tokenizer->bos_id(), 256);
  EXPECT_EQ(tokenizer->eos_id(), 257);
  EXPECT_EQ(tokenizer->pad_id(), std::nullopt);
  EXPECT_EQ(tokenizer->padding_id(), 257);
  EXPECT_EQ(tokenizer->special().stop, (Ids{256, 257, 258}));
  write("tokenizer_config.json", R"({"bos_token": "<missing>"})");
  EXPECT_THAT(error_of([&] { load_tokenizer(folder_); }),
              AllOf(HasSubstr("tokenizer_config.json: bos_token is \"<missing>\""),
                    HasSubstr("no such token")));
}

TEST_F(LoadTokenizer, SavedFolderLoadsTheSame) {
  write("tokenizer.json", tiny_tokenizer_json({{"a", "b"}}, {"<s>"}).dump());
  write("tokenizer_config.json", R"({"eos_token": "<s>", "chat_template": "hello"})");
  auto first = load_tokenizer(folder_);
  std::filesystem::path other = folder_ / "saved";
  std::filesystem::create_directory(other);
  first->save(other);
  auto second = load_tokenizer(other);
  EXPECT_EQ(second->encode("ab <s>"), first->encode("ab <s>"));
  EXPECT_EQ(second->eos_id(), 257);
  EXPECT_EQ(second->chat_template(), "hello");
  EXPECT_THROW(first->save(folder_ / "absent"), Error);
}

TEST_F(LoadTokenizer, FaultyFoldersAreRefused) {
  EXPECT_THAT(error_of([&] { load_tokenizer(folder_ / "absent"); }), HasSubstr("does not exist"));
  EXPECT_THAT(error_of([&] { load_tokenizer(folder_); }), HasSubstr("has no tokenizer"));
  write("tokenizer.model", "x");
  EXPECT_THAT(error_of([&] { load_tokenizer(folder_); }), HasSubstr("SentencePiece"));
  std::string bytes = tiny_tokenizer_json({}).dump();
  for (std::string_view bad :
       {std::string_view(bytes).substr(0, bytes.size() / 2), std::string_view(""),
        std::string_view("[1]"), std::string_view("{\"a\": \"\xFF\"}")}) {
    write("tokenizer.json", bad);
    EXPECT_THAT(error_of([&] { load_tokenizer(folder_); }), HasSubstr("tokenizer.json"));
  }
  write("char_tokenizer.json", "{}");
  EXPECT_THAT(error_of([&] { load_tokenizer(folder_); }), HasSubstr("both"));
}

// Damage never ends in anything but a tokenizer or an Error.
TEST(BpeTokenizer, DamagedFilesLoadOrThrowError) {
  auto json = tiny_tokenizer_json({{"a", "b"}, {"ab", "c"}}, {"<s>"});
  json["normalizer"] = {{"type", "NFC"}};
  const std::string good = json.dump();
  CounterRng rng({2024});
  int refused = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string bytes = good;
    for (uint64_t k = 0; k <= rng.below(8 * i, 3); ++k) {
      size_t at = rng.below(8 * i + 2 * k + 1, bytes.size());
      if (rng.below(8 * i + 7, 2))
        bytes[at] = static_cast<char>(rng.below(8 * i + 2 * k + 2, 128));
      else
        bytes.erase(at, 1);
    }
    try {
      BpeTokenizer(parse_json(bytes, "FILE"), "FILE").encode("abc <s>\n12");
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1500);
}

TEST(CheckVocabulary, AnotherModelsTokenizerIsRefused) {
  BpeTokenizer tokenizer(tiny_tokenizer_json({}, {"<s>"}), "FILE");
  EXPECT_NO_THROW(check_vocabulary(tokenizer, 257, "the model"));
  EXPECT_NO_THROW(check_vocabulary(tokenizer, 300, "the model"));
  EXPECT_THAT(error_of([&] { check_vocabulary(tokenizer, 256, "/m/config.json"); }),
              AllOf(HasSubstr("ids up to 256"), HasSubstr("/m/config.json has only 256")));
  EXPECT_NO_THROW(check_ids({0, 255}, 256, "FILE:1"));
  EXPECT_THAT(error_of([] {
                check_ids({0, 256}, 256, "FILE:1");
              }),
              HasSubstr("FILE:1: the token id 256 at position 1"));
  EXPECT_THROW(check_ids({-1}, 256, "FILE:1"), Error);
}

}  // namespace
}  // namespace muoncore::data
