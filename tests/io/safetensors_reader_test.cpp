// The reader against files made by hand: what is legal is read, and each fault is one Error that
// says what is wrong.
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"
#include "muoncore/io/safetensors.h"
#include "tests/io/safetensors_fixture.h"

namespace muoncore::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// fmt throughout: g++ 12 warns, wrongly, of "literal" + std::string.
std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                     offsets);
}

std::string object(const std::vector<std::string>& members) {
  return fmt::format("{{{}}}", fmt::join(members, ","));
}

std::string error_of(const std::string& file) {
  try {
    parse_safetensors(bytes_of(file), "x.safetensors");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

std::string error_of(const std::string& header, size_t data) {
  return error_of(file_of(header, data));
}

TEST(SafetensorsReader, ReadsEntriesByOffsetWhateverTheirOrder) {
  std::string file =
      file_of(object({entry("b", "I16", "[2,2]", "[4,12]"), entry("a", "F32", "[]", "[0,4]"),
                      R"("__metadata__":{"format":"pt","é":"ü"})"}) +
                  "   ",
              12);
  auto contents = parse_safetensors(bytes_of(file), "x");
  ASSERT_EQ(contents.entries.size(), 2u);
  EXPECT_EQ(contents.entries[0].name, "a");
  EXPECT_THAT(contents.entries[0].shape, IsEmpty());
  EXPECT_EQ(contents.entries[0].dtype, Dtype::kF32);
  EXPECT_EQ(contents.entries[1].name, "b");
  EXPECT_THAT(contents.entries[1].shape, ElementsAre(2, 2));
  EXPECT_EQ(contents.entries[1].bytes.size(), 8u);
  EXPECT_EQ(contents.entries[1].bytes[0], std::byte{4});
  EXPECT_EQ(contents.metadata.at("é"), "ü");
}

TEST(SafetensorsReader, EmptyTensorsScalarsAndEmptyFilesAreLegal) {
  EXPECT_EQ(error_of("{}", 0), "accepted");
  EXPECT_EQ(error_of(object({entry("a", "F32", "[0,7]", "[0,0]"), entry("b", "U8", "[3]", "[0,3]"),
                             entry("c", "F64", "[5,0]", "[3,3]")}),
                     3),
            "accepted");
  EXPECT_EQ(error_of(object({entry("", "BOOL", "[]", "[0,1]")}), 1), "accepted");
}

TEST(SafetensorsReader, KnowsEveryTypeByNameAndSize) {
  struct {
    const char* name;
    int count, bytes;
  } cases[] = {{"BOOL", 3, 3},    {"F4", 4, 2},          {"F6_E2M3", 4, 3},     {"F6_E3M2", 8, 6},
               {"U8", 3, 3},      {"I8", 3, 3},          {"F8_E5M2", 3, 3},     {"F8_E4M3", 3, 3},
               {"F8_E8M0", 3, 3}, {"F8_E4M3FNUZ", 3, 3}, {"F8_E5M2FNUZ", 3, 3}, {"I16", 3, 6},
               {"U16", 3, 6},     {"F16", 3, 6},         {"BF16", 3, 6},        {"I32", 3, 12},
               {"U32", 3, 12},    {"F32", 3, 12},        {"C64", 3, 24},        {"F64", 3, 24},
               {"I64", 3, 24},    {"U64", 3, 24}};
  for (const auto& c : cases) {
    std::string header =
        object({entry("t", c.name, fmt::format("[{}]", c.count), fmt::format("[0,{}]", c.bytes))});
    auto file = file_of(header, static_cast<size_t>(c.bytes));
    ASSERT_EQ(error_of(file), "accepted") << c.name;
    EXPECT_STREQ(to_string(parse_safetensors(bytes_of(file), "x").entries[0].dtype), c.name);
  }
}

TEST(SafetensorsReader, RefusesABadFrame) {
  EXPECT_THAT(error_of(std::string()), HasSubstr("0 bytes, shorter than the 8-byte header length"));
  EXPECT_THAT(error_of("1234567"), HasSubstr("7 bytes, shorter"));
  EXPECT_THAT(error_of(std::string(8, '\xff')), HasSubstr("above the format's limit of 100000000"));
  std::string too_long = file_of("{}", 0);
  too_long[0] = 3;
  EXPECT_THAT(error_of(too_long),
              HasSubstr("header length 3 goes beyond the end of the file (10 bytes)"));
  EXPECT_THAT(error_of("", 0), HasSubstr("does not start with '{'"));
  EXPECT_THAT(error_of(" {}", 0), HasSubstr("does not start with '{'"));
  EXPECT_THAT(error_of("[]", 0), HasSubstr("does not start with '{'"));
  EXPECT_THAT(error_of("{\"a\"", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{}x", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(std::string("{}\0", 3), 0), HasSubstr("contains a NUL"));
  EXPECT_THAT(error_of("{\"\xff\":1}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(fmt::format("{{\"a\":{}", std::string(100000, '[')), 0),
              HasSubstr("nests deeper"));
}

TEST(SafetensorsReader, RefusesBadEntries) {
  auto one = [](const std::string& body) { return error_of(fmt::format("{{\"w\":{}}}", body), 4); };
  EXPECT_THAT(one("3"), HasSubstr("x.safetensors: tensor \"w\" must be an object, found number"));
  EXPECT_THAT(one(R"({"shape":[1],"data_offsets":[0,4]})"), HasSubstr("\"w\" has no dtype"));
  EXPECT_THAT(one(R"({"dtype":"F32","data_offsets":[0,4]})"), HasSubstr("\"w\" has no shape"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[1]})"), HasSubstr("\"w\" has no data_offsets"));
  EXPECT_THAT(one(R"({"dtype":"F99","shape":[1],"data_offsets":[0,4]})"),
              HasSubstr("unknown dtype \"F99\""));
  EXPECT_THAT(one(R"({"dtype":32,"shape":[1],"data_offsets":[0,4]})"),
              HasSubstr("unknown dtype 32"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"),
              HasSubstr("a dimension 1.0"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"),
              HasSubstr("a dimension -1"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":"1","data_offsets":[0,4]})"), HasSubstr("not a list"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})"),
              HasSubstr("not [begin, end]"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,"4"]})"),
              HasSubstr("an offset \"4\""));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,1e30]})"),
              HasSubstr("an offset 1e+30"));
  EXPECT_THAT(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]})"),
              HasSubstr("not a whole number below 2^63"));
}

TEST(SafetensorsReader, RefusesDuplicateKeysAndBadMetadata) {
  EXPECT_THAT(
      error_of(object({entry("a", "U8", "[1]", "[0,1]"), entry("a", "U8", "[1]", "[1,2]")}), 2),
      HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("duplicate key \"dtype\""));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0),
              HasSubstr("duplicate key \"a\""));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":1}})", 0),
              HasSubstr("\"a\" must be a string, found number"));
  EXPECT_THAT(error_of(R"({"__metadata__":[]})", 0),
              HasSubstr("must be an object of strings, found array"));
}

TEST(SafetensorsReader, RefusesSizesThatDoNotFit) {
  auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets,
                size_t data) {
    return error_of(object({entry("w", dtype, shape, offsets)}), data);
  };
  EXPECT_THAT(one("F32", "[3]", "[0,8]", 8),
              HasSubstr("[0, 8], 8 bytes, but F32 [3] takes 12 bytes"));
  EXPECT_THAT(one("F32", "[4611686018427387904]", "[0,0]", 0), HasSubstr("whose size overflows"));
  EXPECT_THAT(one("U8", "[4294967296,4294967296,4294967296]", "[0,0]", 0),
              HasSubstr("whose size overflows"));
  EXPECT_THAT(one("F4", "[3]", "[0,1]", 1), HasSubstr("does not fill whole bytes"));
  EXPECT_THAT(one("U8", "[4]", "[0,4]", 3),
              HasSubstr("[0, 4] goes beyond the end of the data (3 bytes): truncated?"));
  EXPECT_THAT(one("U8", "[4]", "[0,4]", 5),
              HasSubstr("1 bytes after w (ending at 4) belong to no tensor"));
  EXPECT_THAT(one("U8", "[4]", "[1,5]", 5), HasSubstr("1 bytes between the start of the data"));
  EXPECT_THAT(one("U8", "[4]", "[4,0]", 4), HasSubstr("belong to no tensor"));
  auto two = [](const std::string& a, const std::string& b) {
    return error_of(object({entry("a", "U8", "[4]", a), entry("b", "U8", "[4]", b)}), 8);
  };
  EXPECT_THAT(two("[0,4]", "[3,7]"), HasSubstr("tensor \"b\" [3, 7] overlaps a, which ends at 4"));
  EXPECT_THAT(two("[0,4]", "[0,4]"), HasSubstr("tensor \"b\" [0, 4] overlaps a"));
  EXPECT_THAT(two("[0,4]", "[5,9]"),
              HasSubstr("1 bytes between a (ending at 4) and tensor \"b\" [5, 9]"));
}

// Bytes of a valid header are changed, dropped, doubled or swapped, thousands of times: each result
// is either read (then its spans lie within the file and tile it) or refused with an Error; nothing
// else happens.
TEST(SafetensorsReader, SurvivesMutatedFiles) {
  const std::string valid =
      file_of(object({entry("a", "F32", "[2,2]", "[0,16]"), entry("b", "BF16", "[3]", "[16,22]"),
                      R"("__metadata__":{"format":"pt"})"}),
              22);
  const std::string letters = "{}[]\",:0123456789-+.eEaFUI\\ \n\xff\xc3";
  CounterRng rng({2026, hash_name("safetensors mutations")});
  uint64_t draw = 0;
  auto below = [&](uint64_t n) { return rng.below(draw++, n); };
  int read = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = valid;
    for (uint64_t edits = 1 + below(3); edits > 0; --edits) {
      uint64_t at = below(file.size());
      switch (below(5)) {
        case 0:
          file[at] = letters[below(letters.size())];
          break;
        case 1:
          file[at] = static_cast<char>(below(256));
          break;
        case 2:
          file.erase(at, 1 + below(8));
          break;
        case 3:
          file.insert(at, 1, letters[below(letters.size())]);
          break;
        case 4:
          file.insert(at, file.substr(below(file.size()), below(40)));
          break;
      }
      if (file.empty()) break;
    }
    try {
      auto contents = parse_safetensors(bytes_of(file), "x");
      ++read;
      for (const auto& e : contents.entries) {
        ASSERT_GE(e.bytes.data(), bytes_of(file).data());
        ASSERT_LE(e.bytes.data() + e.bytes.size(), bytes_of(file).data() + file.size());
      }
    } catch (const Error&) {
    }
  }
  EXPECT_GT(read, 100);    // changes within data or names leave a valid file
  EXPECT_LT(read, 15000);  // and most others do not
}

}  // namespace
}  // namespace muoncore::io
