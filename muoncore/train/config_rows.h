// The vocabulary in which the tables of options are written: one row per option,
//   real("lr", 1e-6, "learning rate").above(0)
// Keys are relative to the subtree; `under` puts its path in front.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "muoncore/core/option_table.h"

namespace muoncore::train {

// An Option with modifiers. Each returns the row itself.
struct Row : Option {
  Row at_least(double bound) &&;
  Row above(double bound) &&;
  Row at_most(double bound) &&;
  Row below(double bound) &&;
  Row also(double value) &&;  // allowed besides the range
  Row one_of(std::vector<std::string> words) &&;
  Row elements(size_t count) &&;
  Row or_null() &&;
  Row file() &&;
  Row added() &&;                            // a key of ours; verl has none
  Row for_optimizer(std::string choice) &&;  // has a meaning for this optimizer only
  Row mapping_keys(std::vector<Option> keys) &&;
  Row why(std::string reason) &&;   // why less is allowed than in verl
  Row says(std::string remark) &&;  // a remark of `config show`
  template <typename T>
  Row verl(T value) && {
    verl_default = YamlNode::of(value);
    return std::move(*this);
  }
  Row verl_node(YamlNode value) &&;
};

Row flag(std::string key, bool fallback, std::string help);
Row integer(std::string key, int64_t fallback, std::string help);
Row real(std::string key, double fallback, std::string help);
Row text(std::string key, std::string fallback, std::string help);
Row null_integer(std::string key, std::string help);  // nullable, default null; as the others
Row null_real(std::string key, std::string help);
Row null_text(std::string key, std::string help);
Row null_flag(std::string key, std::string help);
Row null_texts(std::string key, std::string help);  // one text or a list
Row texts(std::string key, std::vector<std::string> fallback, std::string help);
Row reals(std::string key, std::vector<double> fallback, std::string help);
Row integers(std::string key, std::vector<int64_t> fallback, std::string help);
Row mapping(std::string key, std::string help);

// A key of verl's that has one supported value here, and why.
Row only_flag(std::string key, bool value, std::string why);
Row only_integer(std::string key, int64_t value, std::string why);
Row only_text(std::string key, std::string value, std::string why);
Row only_null(std::string key, std::string why);

using Options = std::vector<Option>;
using Refusals = std::vector<Refusal>;

Options under(const std::string& prefix, std::vector<Row> rows);
Refusals refuse(const std::string& prefix, const std::vector<std::string>& keys,
                const std::string& reason);

template <typename T>
void append(std::vector<T>& all, std::vector<T> more) {
  for (T& item : more) all.push_back(std::move(item));
}

}  // namespace muoncore::train
