// One declaration per option. From the table come validation, defaults, `muoncore config show` and
// docs/config.md.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "muoncore/core/yaml_tree.h"

namespace muoncore {

enum class OptionType {
  kFlag,
  kInteger,
  kReal,
  kText,
  kIntegers,     // a list of integers
  kReals,        // a list of reals
  kTexts,        // a list of strings
  kTextOrTexts,  // one string or a list of them; resolved to a list
  kNull,         // null alone
  kMapping,      // a mapping of its own keys; checked by `keys` when that is not empty, else by the
                 // owner
};
const char* to_string(OptionType type);  // "flag", "integer", ...

struct Option {
  std::string path;  // full, dotted
  OptionType type = OptionType::kText;
  YamlNode fallback;                     // our default
  std::optional<YamlNode> verl_default;  // where verl has the key with another default
  std::string help;                      // one line
  bool nullable = false;
  // of a text, or of each element of a list; also of a flag ("False")
  std::vector<std::string> choices = {};
  std::optional<double> min = {}, max = {};  // of a number, or of each element
  bool min_open = false, max_open = false;   // the bound itself is not allowed
  std::vector<double> besides = {};          // values allowed outside of the range (verl's -1)
  std::optional<size_t> size = {};           // of a list
  std::string why_only = "";      // reason when `choices` or the range is narrower than verl's
  std::vector<Option> keys = {};  // of a mapping: what it may hold (paths relative to it)
  std::string note = "";          // what `config show` says beside the value
  bool names_file = false;        // a text or texts: a path; a leading ~/ is the home folder
  // the choice of another option without which this one has no meaning ("muon")
  std::string only_for = "";
  bool added = false;  // a key that verl does not have
};

// A key (or a whole subtree) of verl's that is refused by name. A path that starts with "*." is
// that key anywhere.
struct Refusal {
  std::string path;
  std::string reason;
};

// Every declared path with its value and where it was set (an empty position: default).
using ResolvedOptions = std::map<std::string, YamlNode>;

class OptionTable {
 public:
  OptionTable(std::vector<Option> options, std::vector<Refusal> refusals);

  const std::vector<Option>& options() const { return options_; }
  const std::vector<Refusal>& refusals() const { return refusals_; }
  const Option* find(const std::string& path) const;  // nullptr: not declared
  bool is_section(const std::string& path) const;     // a mapping on the way to an option

  // Checks every key and value of the tree and fills in the defaults. Throws Error: unknown key
  // (with the nearest name), refused key (with the reason), wrong type, choice or range.
  ResolvedOptions resolve(const YamlNode& tree) const;

 private:
  void collect(const YamlNode& tree, const std::string& prefix, ResolvedOptions& values) const;
  const Refusal* refusal_of(const std::string& path) const;
  [[noreturn]] void refuse_unknown(const std::string& path, const YamlNode& node) const;

  std::vector<Option> options_;
  std::vector<Refusal> refusals_;
  std::unordered_map<std::string, size_t> index_;
  std::set<std::string> sections_;
};

// Checks one value against its option; returns it in the option's own type (an integer becomes a
// real, one text a list). Throws Error. `path` stands in the message.
YamlNode check_option(const Option& option, const std::string& path, const YamlNode& value);

std::string describe_allowed(
    const Option& option);  // "one of spectral, unit_rms_norm", "a real > 0", ...

}  // namespace muoncore
