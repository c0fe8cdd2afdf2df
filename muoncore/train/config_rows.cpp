#include "muoncore/train/config_rows.h"

namespace muoncore::train {
namespace {

Row row(std::string key, OptionType type, YamlNode fallback, std::string help) {
  Row row;
  row.path = std::move(key);
  row.type = type;
  row.fallback = std::move(fallback);
  row.help = std::move(help);
  return row;
}

template <typename T>
YamlNode list_of(const std::vector<T>& values) {
  std::vector<YamlNode> items;
  for (const T& value : values) items.push_back(YamlNode::of(value));
  return YamlNode::list(std::move(items));
}

Row null_row(std::string key, OptionType type, std::string help) {
  return row(std::move(key), type, YamlNode::null_value(), std::move(help)).or_null();
}

}  // namespace

Row Row::at_least(double bound) && {
  min = bound;
  return std::move(*this);
}

Row Row::above(double bound) && {
  min = bound;
  min_open = true;
  return std::move(*this);
}

Row Row::at_most(double bound) && {
  max = bound;
  return std::move(*this);
}

Row Row::below(double bound) && {
  max = bound;
  max_open = true;
  return std::move(*this);
}

Row Row::also(double value) && {
  besides.push_back(value);
  return std::move(*this);
}

Row Row::one_of(std::vector<std::string> words) && {
  choices = std::move(words);
  return std::move(*this);
}

Row Row::elements(size_t count) && {
  size = count;
  return std::move(*this);
}

Row Row::or_null() && {
  nullable = true;
  return std::move(*this);
}

Row Row::file() && {
  names_file = true;
  return std::move(*this);
}

Row Row::added() && {
  Option::added = true;
  return std::move(*this);
}

Row Row::for_optimizer(std::string choice) && {
  only_for = std::move(choice);
  return std::move(*this);
}

Row Row::mapping_keys(std::vector<Option> options) && {
  keys = std::move(options);
  return std::move(*this);
}

Row Row::why(std::string reason) && {
  why_only = std::move(reason);
  return std::move(*this);
}

Row Row::says(std::string remark) && {
  note = std::move(remark);
  return std::move(*this);
}

Row Row::verl_node(YamlNode value) && {
  verl_default = std::move(value);
  return std::move(*this);
}

Row flag(std::string key, bool fallback, std::string help) {
  return row(std::move(key), OptionType::kFlag, YamlNode::of(fallback), std::move(help));
}

Row integer(std::string key, int64_t fallback, std::string help) {
  return row(std::move(key), OptionType::kInteger, YamlNode::of(fallback), std::move(help));
}

Row real(std::string key, double fallback, std::string help) {
  return row(std::move(key), OptionType::kReal, YamlNode::of(fallback), std::move(help));
}

Row text(std::string key, std::string fallback, std::string help) {
  return row(std::move(key), OptionType::kText, YamlNode::of(std::move(fallback)), std::move(help));
}

Row null_integer(std::string key, std::string help) {
  return null_row(std::move(key), OptionType::kInteger, std::move(help));
}

Row null_real(std::string key, std::string help) {
  return null_row(std::move(key), OptionType::kReal, std::move(help));
}

Row null_text(std::string key, std::string help) {
  return null_row(std::move(key), OptionType::kText, std::move(help));
}

Row null_flag(std::string key, std::string help) {
  return null_row(std::move(key), OptionType::kFlag, std::move(help));
}

Row null_texts(std::string key, std::string help) {
  return null_row(std::move(key), OptionType::kTextOrTexts, std::move(help));
}

Row texts(std::string key, std::vector<std::string> fallback, std::string help) {
  return row(std::move(key), OptionType::kTexts, list_of(fallback), std::move(help));
}

Row reals(std::string key, std::vector<double> fallback, std::string help) {
  return row(std::move(key), OptionType::kReals, list_of(fallback), std::move(help));
}

Row integers(std::string key, std::vector<int64_t> fallback, std::string help) {
  return row(std::move(key), OptionType::kIntegers, list_of(fallback), std::move(help));
}

Row mapping(std::string key, std::string help) {
  return row(std::move(key), OptionType::kMapping, YamlNode::map({}), std::move(help));
}

Row only_flag(std::string key, bool value, std::string why) {
  return flag(std::move(key), value, "").one_of({value ? "True" : "False"}).why(std::move(why));
}

Row only_integer(std::string key, int64_t value, std::string why) {
  double number = static_cast<double>(value);
  return integer(std::move(key), value, "").at_least(number).at_most(number).why(std::move(why));
}

Row only_text(std::string key, std::string value, std::string why) {
  return text(std::move(key), value, "").one_of({value}).why(std::move(why));
}

Row only_null(std::string key, std::string why) {
  return null_row(std::move(key), OptionType::kNull, "").why(std::move(why));
}

Options under(const std::string& prefix, std::vector<Row> rows) {
  Options options;
  for (Row& row : rows) {
    row.path = prefix + "." + row.path;
    options.push_back(std::move(row));
  }
  return options;
}

Refusals refuse(const std::string& prefix, const std::vector<std::string>& keys,
                const std::string& reason) {
  Refusals refusals;
  for (const std::string& key : keys)
    refusals.push_back({prefix.empty() ? key : prefix + "." + key, reason});
  return refusals;
}

}  // namespace muoncore::train
