#include "muoncore/core/yaml_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <random>

#include "muoncore/core/check.h"
#include "tests/support/error_of.h"

namespace muoncore {
namespace {

using ::testing::HasSubstr;

std::string parse_error(const std::string& source) {
  return error_of([&] { parse_yaml(source, "f.yaml"); });
}

YamlNode value(const std::string& text) { return *parse_yaml("k: " + text, "f").find("k"); }

struct Typing {
  std::string text;
  YamlType type;
};

class YamlTyping : public ::testing::TestWithParam<Typing> {};

TEST_P(YamlTyping, ScalarHasTheType) {
  EXPECT_EQ(value(GetParam().text).type, GetParam().type) << GetParam().text;
  if (GetParam().text.empty()) return;  // an override must have a value
  EXPECT_EQ(parse_yaml_value(GetParam().text, {"command line"}).type, GetParam().type);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, YamlTyping,
    ::testing::Values(Typing{"", YamlType::kNull}, Typing{"~", YamlType::kNull},
                      Typing{"null", YamlType::kNull}, Typing{"Null", YamlType::kNull},
                      Typing{"true", YamlType::kBool}, Typing{"False", YamlType::kBool},
                      Typing{"TRUE", YamlType::kBool}, Typing{"tRue", YamlType::kString},
                      Typing{"yes", YamlType::kString}, Typing{"off", YamlType::kString},
                      Typing{"'true'", YamlType::kString}, Typing{"\"False\"", YamlType::kString},
                      Typing{"0", YamlType::kInt}, Typing{"-7", YamlType::kInt},
                      Typing{"+7", YamlType::kInt}, Typing{"-0", YamlType::kInt},
                      Typing{"007", YamlType::kString}, Typing{"0x10", YamlType::kString},
                      Typing{"0o17", YamlType::kString}, Typing{"1_000", YamlType::kString},
                      Typing{"12:30", YamlType::kString}, Typing{"1e-6", YamlType::kFloat},
                      Typing{"1E6", YamlType::kFloat}, Typing{".5", YamlType::kFloat},
                      Typing{"5.", YamlType::kFloat}, Typing{"-1.25e+3", YamlType::kFloat},
                      Typing{"1e", YamlType::kString}, Typing{"e5", YamlType::kString},
                      Typing{".", YamlType::kString}, Typing{"--", YamlType::kString},
                      Typing{".e5", YamlType::kString}, Typing{"1.2.3", YamlType::kString},
                      Typing{"1e5.5", YamlType::kString}, Typing{".inf", YamlType::kFloat},
                      Typing{"-.INF", YamlType::kFloat}, Typing{".nan", YamlType::kFloat},
                      Typing{"'1'", YamlType::kString}, Typing{"[1, a]", YamlType::kList},
                      Typing{"{a: 1}", YamlType::kMap}, Typing{"[]", YamlType::kList}),
    [](const auto& info) { return "Row" + std::to_string(info.index); });

TEST(YamlTree, ScalarsHaveTheirValues) {
  EXPECT_EQ(value("1e-6").real, 1e-6);
  EXPECT_EQ(value("-9223372036854775808").integer, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(value("+9223372036854775807").integer, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(value("-.inf").real, -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(value(".NaN").real));
  EXPECT_TRUE(value("True").boolean);
  EXPECT_FALSE(value("false").boolean);
  EXPECT_EQ(value("3").real, 3.0);
  EXPECT_EQ(value("'a: b # c'").text, "a: b # c");
  EXPECT_EQ(value("\"\\u00e9\\n\"").text, "\u00e9\n");
}

TEST(YamlTree, NestsAndKeepsTheOrderOfTheFile) {
  YamlNode tree = parse_yaml("b:\n  y: [1, 2.5, x]\n  x: {p: 1}\na: 3\n", "f");
  ASSERT_EQ(tree.fields.size(), 2u);
  EXPECT_EQ(tree.fields[0].first, "b");
  EXPECT_EQ(tree.fields[1].first, "a");
  const YamlNode* list = tree.find("b")->find("y");
  ASSERT_EQ(list->items.size(), 3u);
  EXPECT_EQ(list->items[1].real, 2.5);
  EXPECT_EQ(list->items[2].text, "x");
  EXPECT_EQ(tree.find("b")->find("x")->find("p")->integer, 1);
  EXPECT_EQ(tree.find("c"), nullptr);
}

TEST(YamlTree, PositionsAreThoseOfTheKeys) {
  YamlNode tree = parse_yaml("# comment\na: 1\nb:\n  c:\n    - 1\n    - 2\n", "f.yaml");
  EXPECT_EQ(to_string(tree.find("a")->position), "f.yaml:2");
  EXPECT_EQ(to_string(tree.find("b")->find("c")->position), "f.yaml:4");
  EXPECT_EQ(tree.find("b")->find("c")->position.column, 3);
  EXPECT_EQ(to_string(tree.find("b")->find("c")->items[1].position), "f.yaml:6");
  EXPECT_EQ(to_string(Position{}), "default");
}

TEST(YamlTree, EmptyDocumentsAreEmptyMappings) {
  for (const char* source : {"", "\n", "# nothing\n", "---\n", "null\n", "\xEF\xBB\xBF"})
    EXPECT_TRUE(parse_yaml(source, "f").fields.empty()) << source;
}

struct BadYaml {
  std::string source;
  std::string fragment;
};

class YamlRefusals : public ::testing::TestWithParam<BadYaml> {};

TEST_P(YamlRefusals, NamesTheFault) {
  EXPECT_THAT(parse_error(GetParam().source), HasSubstr(GetParam().fragment));
}

INSTANTIATE_TEST_SUITE_P(
    Rows, YamlRefusals,
    ::testing::Values(
        BadYaml{"a: 1\nb: 2\na: 3\n", "f.yaml:3: duplicate key 'a' (first at f.yaml:1)"},
        BadYaml{"x:\n  a: 1\n  'a': 2\n", "f.yaml:3: duplicate key 'a'"},
        BadYaml{"x: {a: 1, a: 2}\n", "f.yaml:1: duplicate key 'a'"},
        BadYaml{"a: &n 1\n", "f.yaml:1: the anchor &n is not supported"},
        BadYaml{"a: &n 1\nb: *n\n", "anchor"}, BadYaml{"a: 1\nb: *n\n", "f.yaml:2"},
        BadYaml{"b: {<<: {a: 1}}\n", "merge keys"}, BadYaml{"a: !!str 5\n", "f.yaml:1: the tag"},
        BadYaml{"a: !x [1]\n", "the tag"},
        BadYaml{"a: 1\n---\nb: 2\n", "more than one YAML document"},
        BadYaml{"- 1\n- 2\n", "f.yaml:1: the file must be a mapping of keys, not a list"},
        BadYaml{"just text\n", "must be a mapping of keys, not a string"},
        BadYaml{"? [a, b]\n: 1\n", "a key must be a string"},
        BadYaml{"? {a: b}\n: 1\n", "a key must be a string"},
        BadYaml{"a: [1, 2\n", "no valid YAML"}, BadYaml{"a: b: c\n", "f.yaml:1: no valid YAML"},
        BadYaml{"a: \"open\n", "no valid YAML"}, BadYaml{"\ta: 1\n", "no valid YAML"},
        BadYaml{"a: \"open\nb: \"x\"\n",
                "f.yaml:1: no valid YAML: a quoted string must end on its line"},
        BadYaml{"a: 'open\n  more'\n", "must end on its line"},
        BadYaml{"a: \"x\\\"\n", "no valid YAML"},
        BadYaml{": 1\n", "f.yaml:1: no valid YAML: a key is missing"},
        BadYaml{"a: 9223372036854775808\n", "f.yaml:1: the integer 9223372036854775808"},
        BadYaml{"\na: 1e999\n", "f.yaml:2: the number 1e999 is beyond the range"},
        BadYaml{"a: \xFF\n", "not valid UTF-8"},
        BadYaml{"a: " + std::string(100, '[') + std::string(100, ']'), "nested deeper"},
        BadYaml{"a: " + std::string(100000, '['), ""}),
    [](const auto& info) { return "Row" + std::to_string(info.index); });

TEST(YamlTree, ReadsAFileAndNamesItInErrors) {
  std::filesystem::path file = std::filesystem::temp_directory_path() / "muoncore_yaml_test.yaml";
  std::ofstream(file) << "a: 1\na: 2\n";
  EXPECT_THAT(error_of([&] { read_yaml(file); }), HasSubstr(file.string() + ":2: duplicate key"));
  std::filesystem::remove(file);
  EXPECT_THAT(error_of([&] { read_yaml(file); }), HasSubstr("does not exist"));
  EXPECT_THAT(error_of([&] { read_yaml("/"); }), HasSubstr("cannot read the config file '/'"));
}

TEST(YamlOverride, SetsNestedKeysAndReplaces) {
  YamlNode tree = parse_yaml("a:\n  b: 1\n", "f");
  apply_override(tree, "a.b=2");
  apply_override(tree, "a.c.d=[1, x, 'y z']");
  apply_override(tree, "+e=True");
  apply_override(tree, "++f={p: 1e-6}");
  EXPECT_EQ(tree.find("a")->find("b")->integer, 2);
  EXPECT_EQ(tree.find("a")->find("b")->position.file, "command line");
  const YamlNode* list = tree.find("a")->find("c")->find("d");
  ASSERT_EQ(list->items.size(), 3u);
  EXPECT_EQ(list->items[2].text, "y z");
  EXPECT_TRUE(tree.find("e")->boolean);
  EXPECT_EQ(tree.find("f")->find("p")->real, 1e-6);
  EXPECT_EQ(to_string(tree.find("f")->position), "command line");
}

TEST(YamlOverride, APlainValueIsTakenAsItStands) {
  YamlNode tree = YamlNode::map({});
  apply_override(tree, "a=x: y # no comment = at all");
  EXPECT_EQ(tree.find("a")->text, "x: y # no comment = at all");
  apply_override(tree, "a= 3 ");
  EXPECT_EQ(tree.find("a")->integer, 3);
  apply_override(tree, "a=''");
  EXPECT_EQ(tree.find("a")->type, YamlType::kString);
  EXPECT_EQ(tree.find("a")->text, "");
  apply_override(tree, "a='#### [0-9]'");
  EXPECT_EQ(tree.find("a")->text, "#### [0-9]");
}

struct BadOverride {
  std::string text;
  std::string fragment;
};

class OverrideRefusals : public ::testing::TestWithParam<BadOverride> {};

TEST_P(OverrideRefusals, NamesTheFault) {
  YamlNode tree = YamlNode::map({});
  EXPECT_THAT(error_of([&] { apply_override(tree, GetParam().text); }),
              HasSubstr(GetParam().fragment));
}

INSTANTIATE_TEST_SUITE_P(
    Rows, OverrideRefusals,
    ::testing::Values(
        BadOverride{"a.b", "'a.b' is no override; write key.path=value"},
        BadOverride{"=1", "is no override"}, BadOverride{"~a=1", "removing a key is not supported"},
        BadOverride{"a..b=1", "a key is missing between the dots"},
        BadOverride{".a=1", "a key is missing"}, BadOverride{"+=1", "a key is missing"},
        BadOverride{"a=", "command line: a value is missing after '='"},
        BadOverride{"a=  ", "a value is missing"},
        BadOverride{"a=[1,", "a bracket is not closed) (in 'a=[1,')"},
        BadOverride{"a={x: 1, x: 2}", "command line: duplicate key 'x'"},
        BadOverride{"a='x': 1", "command line: ''x': 1' is no value"},
        BadOverride{"a='open", "no valid YAML"}, BadOverride{"a=\xFF", "not valid UTF-8"},
        BadOverride{"a=[&x 1]", "command line: the anchor"}),
    [](const auto& info) { return "Row" + std::to_string(info.index); });

TEST(YamlFlow, ReadsBackAsTheSameValue) {
  std::vector<YamlNode> values = {
      YamlNode::null_value(),  YamlNode::of(true),
      YamlNode::of(-3),        YamlNode::of(1e-6),
      YamlNode::of(0.1 + 0.2), YamlNode::of(5e-324),
      YamlNode::of(1e300),     YamlNode::of(3.0),
      YamlNode::of(-0.0),      YamlNode::of(std::numeric_limits<double>::infinity())};
  for (const char* text : {"",
                           " ",
                           "a",
                           "a b",
                           "null",
                           "~",
                           "True",
                           "yes",
                           "No",
                           "1",
                           "1e-6",
                           "007",
                           ".5",
                           "1e999",
                           "-",
                           "- a",
                           "a: b",
                           "a #b",
                           "#b",
                           "[a]",
                           "{a}",
                           "it's",
                           "\"q\"",
                           "\\",
                           "a\nb",
                           "\t",
                           "\x01",
                           "\x7f",
                           "\u00e9\u2028\u4e2d",
                           "%x",
                           "@x",
                           "&x",
                           "*x",
                           "!x",
                           "|",
                           ">",
                           "?",
                           ":",
                           ",",
                           "/a/b.yaml",
                           "x=y",
                           "${a}",
                           "\u0085"})
    values.push_back(YamlNode::of(text));
  values.push_back(YamlNode::list(values));
  values.push_back(YamlNode::map({{"a", YamlNode::of(1)}, {"b c:", values.back()}}));
  for (const YamlNode& value : values) {
    std::string text = to_flow_yaml(value);
    EXPECT_TRUE(parse_yaml_value(text, {"x"}).same_value(value)) << text;
    EXPECT_TRUE(parse_yaml("k: " + text, "f").find("k")->same_value(value)) << text;
  }
}

TEST(YamlFlow, RandomStringsReadBack) {
  std::mt19937 random(7);
  const std::string alphabet = "ab1.-:#'\"\\[]{},&*!|>%@` \t\n~?=<\x01\x1f";
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t i = random() % 9; i > 0; --i) text += alphabet[random() % alphabet.size()];
    YamlNode value = YamlNode::of(text);
    EXPECT_TRUE(parse_yaml("k: " + to_flow_yaml(value), "f").find("k")->same_value(value)) << text;
  }
}

// Every answer is a tree or an Error: never a crash, another exception, or an endless loop.
TEST(YamlTree, RandomBytesAreRefusedOrRead) {
  std::mt19937 random(3);
  const std::string alphabet = "a1: \n-[]{},'\"#&*!|>?~<%@\t\xC3";
  for (int round = 0; round < 5000; ++round) {
    std::string source;
    for (size_t i = random() % 40; i > 0; --i) source += alphabet[random() % alphabet.size()];
    try {
      parse_yaml(source, "f");
    } catch (const Error&) {
    }
  }
}

TEST(YamlTree, SameValueComparesNumbersAcrossTypes) {
  EXPECT_TRUE(YamlNode::of(1).same_value(YamlNode::of(1.0)));
  EXPECT_FALSE(YamlNode::of(1).same_value(YamlNode::of("1")));
  EXPECT_FALSE(YamlNode::of(1).same_value(YamlNode::of(true)));
  EXPECT_FALSE(YamlNode::null_value().same_value(YamlNode::of("")));
  EXPECT_FALSE(YamlNode::list({YamlNode::of(1)}).same_value(YamlNode::list({})));
  EXPECT_FALSE(
      YamlNode::map({{"a", YamlNode::of(1)}}).same_value(YamlNode::map({{"b", YamlNode::of(1)}})));
}

}  // namespace
}  // namespace muoncore
