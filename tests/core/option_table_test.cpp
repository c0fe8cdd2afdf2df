#include "muoncore/core/option_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "muoncore/core/check.h"

namespace muoncore {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Option option(std::string path, OptionType type, YamlNode fallback) {
  Option option;
  option.path = std::move(path);
  option.type = type;
  option.fallback = std::move(fallback);
  return option;
}

// One option of every type and limit.
OptionTable make_table() {
  std::vector<Option> options = {
      option("a.flag", OptionType::kFlag, YamlNode::of(false)),
      option("a.count", OptionType::kInteger, YamlNode::of(4)),
      option("a.rate", OptionType::kReal, YamlNode::of(0.5)),
      option("a.b.word", OptionType::kText, YamlNode::of("red")),
      option("a.b.free", OptionType::kText, YamlNode::of("x")),
      option("betas", OptionType::kReals, YamlNode::list({YamlNode::of(0.9), YamlNode::of(0.999)})),
      option("names", OptionType::kTexts, YamlNode::list({})),
      option("files", OptionType::kTextOrTexts, YamlNode::null_value()),
      option("seeds", OptionType::kIntegers, YamlNode::list({YamlNode::of(1)})),
      option("nothing", OptionType::kNull, YamlNode::null_value()),
      option("map", OptionType::kMapping, YamlNode::map({})),
      option("free_map", OptionType::kMapping, YamlNode::map({})),
      option("one", OptionType::kInteger, YamlNode::of(1)),
  };
  options[1].min = 1;
  options[1].besides = {-1};
  options[2].min = 0;
  options[2].max = 1;
  options[2].max_open = true;
  options[3].choices = {"red", "green", "dark_blue"};
  options[5].size = 2;
  options[5].min = 0;
  options[6].choices = {"console", "file"};
  options[7].nullable = true;
  options[7].names_file = true;
  options[9].nullable = true;
  options[10].keys = {option("lr", OptionType::kReal, YamlNode::of(0.0)),
                      option("on", OptionType::kFlag, YamlNode::of(true))};
  options[12].min = options[12].max = 1;
  options[12].why_only = "one process";
  return {options, {{"critic", "there is none"}, {"a.old", "set a.count"}, {"*.cls", "no Python"}}};
}

ResolvedOptions resolve(const std::string& source) {
  static const OptionTable table = make_table();
  return table.resolve(parse_yaml(source, "f.yaml"));
}

TEST(OptionTable, FillsEveryOptionWithItsDefault) {
  ResolvedOptions values = resolve("");
  EXPECT_EQ(values.size(), 13u);
  EXPECT_EQ(values.at("a.count").integer, 4);
  EXPECT_EQ(values.at("a.b.word").text, "red");
  EXPECT_TRUE(values.at("files").is_null());
  EXPECT_EQ(to_string(values.at("a.count").position), "default");
}

TEST(OptionTable, TakesValuesInTheOptionsType) {
  ResolvedOptions values = resolve(
      "a:\n  flag: True\n  count: -1\n  rate: 0\n  b: {word: green}\nbetas: [0, 0.5]\n"
      "names: [file, console]\nfiles: one.txt\nseeds: [3, 4]\nnothing: null\nmap: {lr: 1}\n"
      "free_map: {x.y: 1}\none: 1\n");
  EXPECT_TRUE(values.at("a.flag").boolean);
  EXPECT_EQ(values.at("a.count").integer, -1);
  EXPECT_EQ(values.at("a.rate").type, YamlType::kFloat);
  EXPECT_EQ(to_string(values.at("a.rate").position), "f.yaml:4");
  EXPECT_EQ(values.at("betas").items[0].type, YamlType::kFloat);
  ASSERT_EQ(values.at("files").type, YamlType::kList);
  EXPECT_EQ(values.at("files").items[0].text, "one.txt");
  EXPECT_EQ(values.at("map").find("lr")->type, YamlType::kFloat);
  EXPECT_EQ(values.at("free_map").find("x.y")->integer, 1);
}

TEST(OptionTable, ALeadingTildeIsTheHomeFolder) {
  ASSERT_EQ(setenv("HOME", "/home/someone", 1), 0);
  EXPECT_EQ(resolve("files: [~/x, a/~/b]").at("files").items[0].text, "/home/someone/x");
  EXPECT_EQ(resolve("files: [~/x, a/~/b]").at("files").items[1].text, "a/~/b");
  EXPECT_EQ(resolve("a: {b: {free: '~/x'}}").at("a.b.free").text, "~/x");
}

struct Refused {
  std::string source;
  std::vector<std::string> fragments;
};

class OptionRefusals : public ::testing::TestWithParam<Refused> {};

TEST_P(OptionRefusals, NamesTheFault) {
  try {
    resolve(GetParam().source);
    FAIL() << "accepted: " << GetParam().source;
  } catch (const Error& error) {
    for (const std::string& fragment : GetParam().fragments)
      EXPECT_THAT(error.what(), HasSubstr(fragment));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, OptionRefusals,
    ::testing::Values(
        Refused{"a: {flag: \"false\"}",
                {"f.yaml:1: key 'a.flag': value \"false\" (a string); allowed: True or False"}},
        Refused{"a: {flag: 1}", {"key 'a.flag': value 1; allowed: True or False"}},
        Refused{"a: {flag: yes}", {"value \"yes\" (a string)"}},
        Refused{"a: {flag: null}", {"key 'a.flag': value null; allowed: True or False"}},
        Refused{"\na:\n  count: 0",
                {"f.yaml:3: key 'a.count': value 0; allowed: an integer >= 1, or -1"}},
        Refused{"a: {count: 2.0}", {"value 2.0; allowed: an integer"}},
        Refused{"a: {count: '2'}", {"value \"2\" (a string); allowed: an integer"}},
        Refused{"a: {count: [2]}", {"value [2]; allowed: an integer"}},
        Refused{"a: {rate: 1}", {"value 1; allowed: a real number in [0, 1)"}},
        Refused{"a: {rate: -1e-9}", {"value -1e-9; allowed: a real number in [0, 1)"}},
        Refused{"a: {rate: .nan}", {"value .nan; allowed"}},
        Refused{"a: {rate: -.inf}", {"value -.inf"}},
        Refused{"a: {rate: True}", {"value True; allowed: a real number"}},
        Refused{"a: {b: {word: gren}}",
                {"key 'a.b.word': value \"gren\" (a string); allowed: one of red, green, dark_blue",
                 "did you mean 'green'?"}},
        Refused{"a: {b: {word: DARK_BLUE}}", {"did you mean 'dark_blue'?"}},
        Refused{"a: {b: {word: 3}}", {"value 3; allowed: one of red"}},
        Refused{"a: {b: {free: '${a.count}'}}",
                {"key 'a.b.free'", "interpolation (${...}) is not supported"}},
        Refused{"betas: [0.9]",
                {"key 'betas': value [0.9]; allowed: a list of 2 real numbers >= 0"}},
        Refused{"betas: 0.9", {"allowed: a list of 2 real numbers"}},
        Refused{"betas: [0.9, x]", {"value \"x\" (a string)"}},
        Refused{"names: [consol]", {"did you mean 'console'?"}},
        Refused{"names: console", {"allowed: a list of words out of console, file"}},
        Refused{"files: [1]",
                {"key 'files': value 1; allowed: a string or a list of strings, or null"}},
        Refused{"seeds: [1.5]", {"value 1.5; allowed: a list of integers"}},
        Refused{"nothing: x", {"key 'nothing': value \"x\" (a string); allowed: null"}},
        Refused{"map: 3", {"key 'map': value 3; allowed: a mapping"}},
        Refused{"map: {lt: 3}", {"unknown key 'map.lt'; allowed: lr, on; did you mean 'lr'?"}},
        Refused{"map: {on: 3}", {"key 'map.on': value 3; allowed: True or False"}},
        Refused{"one: 2", {"key 'one': value 2; allowed: 1 (not supported: one process)"}},
        Refused{"a:\n  cont: 3",
                {"f.yaml:2: unknown key 'a.cont'; did you mean 'a.count'?; allowed in 'a': b, "
                 "count, flag, rate"}},
        Refused{"word: red",
                {"unknown key 'word'; did you mean 'a.b.word'?; allowed in this file: a, betas"}},
        Refused{"zzzzzzzz: 1", {"unknown key 'zzzzzzzz'"}},
        Refused{"a: 3", {"key 'a': value 3; allowed: a mapping of keys"}},
        Refused{"a:", {"key 'a': value null; allowed: a mapping of keys"}},
        Refused{"a: {count: {x: 1}}", {"key 'a.count': value {x: 1}; allowed: an integer"}},
        Refused{"a.count: 3", {"key 'a.count': a key may not contain a dot"}},
        Refused{"critic: {lr: 1}", {"f.yaml:1: key 'critic': not supported: there is none"}},
        Refused{"a: {old: 1}", {"key 'a.old': not supported: set a.count"}},
        Refused{"a: {b: {cls: x}}", {"key 'a.b.cls': not supported: no Python"}},
        Refused{"cls: x", {"key 'cls': not supported: no Python"}}),
    [](const auto& info) { return "Row" + std::to_string(info.index); });

TEST(OptionTable, RefusesADoubleDeclaration) {
  Option twice = option("a", OptionType::kFlag, YamlNode::of(true));
  EXPECT_THROW(OptionTable({twice, twice}, {}), Error);
}

TEST(OptionTable, KnowsItsSections) {
  OptionTable table = make_table();
  EXPECT_TRUE(table.is_section("a.b"));
  EXPECT_FALSE(table.is_section("a.b.word"));
  EXPECT_FALSE(table.is_section(""));
  EXPECT_EQ(table.find("a.b.word")->fallback.text, "red");
  EXPECT_EQ(table.find("a.b"), nullptr);
}

}  // namespace
}  // namespace muoncore
