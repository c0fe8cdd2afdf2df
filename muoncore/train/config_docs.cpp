#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "muoncore/train/config_tables.h"
#include "muoncore/train/config_text.h"

namespace muoncore::train {
namespace {

constexpr const char* kHead = R"(# The configuration

This page is made from the option tables (`muoncore config docs`); a test holds it to them.

A run takes one YAML file and any number of overrides: `muoncore grpo FILE key.path=value ...`. The command line wins over
the file, the file over the defaults. `muoncore config check FILE [key=value ...]` judges a config, `--files` also whether
the files that it names exist; `muoncore config show FILE` prints every value with where it was set and where our default
differs from verl's. A run writes `config.yaml` (all values; accepted again) and `resolved.json` (what was derived from
them) into its folder.

Rules:
- An unknown key, a wrong type, a value out of range, a duplicate key is an error with file, line, key, what is allowed and
  the nearest name. A key of verl's that we do not support is refused by name, with the reason.
- Scalars: `null ~`; `true True TRUE false False FALSE`; integers (no leading zero); reals (`1e-6` is one); everything else
  is a string, and so is everything in quotes: `"False"` is no flag. No anchors, aliases, tags, merge keys, interpolation
  (`${...}`) or second document.
- An override is `key.path=value`; the value is a scalar, `[a, b]` or `{a: 1}`, typed by the same rules. `+key=value` and
  `++key=value` (Hydra) mean the same as `key=value`: the tables alone decide which keys exist. `~key` is refused.
- Paths of files are relative to the current folder, those of `compare.base` and `compare.start` to the file that names
  them. A leading `~/` is the home folder.
- A key that only Muon has is accepted beside another optimizer as long as it stands at our default or at verl's, so that
  verl's own optimizer file can be used as it is.
)";

// For a cell of a table.
std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string help_of(const Option& option) {
  std::string help = option.help;
  if (!option.why_only.empty()) {
    if (!help.empty()) help += "; ";
    help += "nothing else: " + option.why_only;
  }
  if (option.added) help += help.empty() ? "our own key" : " (our own key)";
  return escaped(help);
}

std::string row(const Option& option, const std::string& prefix) {
  std::string verl =
      option.verl_default ? fmt::format("`{}`", to_flow_yaml(*option.verl_default)) : "";
  return fmt::format("| `{}` | {} | `{}` | {} | {} |\n", option.path.substr(prefix.size()),
                     escaped(describe_allowed(option)), to_flow_yaml(option.fallback), verl,
                     help_of(option));
}

// The section of a page that an option stands in: its path up to the last dot.
std::string section_of(const std::string& path) {
  size_t dot = path.rfind('.');
  return dot == std::string::npos ? path : path.substr(0, dot);
}

std::string option_tables(const OptionTable& table) {
  std::vector<std::string> order;
  std::map<std::string, std::string> rows;
  for (const Option& option : table.options()) {
    std::string section = section_of(option.path);
    if (!rows.contains(section)) order.push_back(section);
    rows[section] += row(option, section + ".");
  }
  std::string out;
  for (const std::string& section : order)
    out += fmt::format(
        "\n### `{}`\n\n| key | allowed | default | verl's default | meaning "
        "|\n|---|---|---|---|---|\n{}",
        section, rows[section]);
  return out;
}

std::string refusal_table(const OptionTable& table) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::string>> keys;  // by reason
  for (const Refusal& refusal : table.refusals()) {
    std::string id = section_of(refusal.path) == refusal.path
                         ? refusal.reason
                         : section_of(refusal.path) + "\n" + refusal.reason;
    if (!keys.contains(id)) order.push_back(id);
    keys[id].push_back(fmt::format("`{}`", refusal.path));
  }
  std::string out = "\n### Refused by name\n\n| keys | reason |\n|---|---|\n";
  for (const std::string& id : order)
    out +=
        fmt::format("| {} | {} |\n", fmt::join(keys[id], ", "),
                    escaped(id.substr(id.find('\n') == std::string::npos ? 0 : id.find('\n') + 1)));
  return out;
}

std::string difference_table(const OptionTable& table) {
  std::string out =
      "\n### Where our default differs from verl's\n\n| key | ours | verl's | why "
      "|\n|---|---|---|---|\n";
  for (const Option& option : table.options())
    if (option.verl_default)
      out += fmt::format("| `{}` | `{}` | `{}` | {} |\n", option.path,
                         to_flow_yaml(option.fallback), to_flow_yaml(*option.verl_default),
                         escaped(option.why_only.empty() ? option.help : option.why_only));
  return out;
}

}  // namespace

std::string config_docs() {
  std::string out = kHead;
  const std::vector<std::pair<ConfigKind, const char*>> pages = {
      {ConfigKind::kGrpo, "verl's `ppo_trainer.yaml` with `model_engine=megatron`"},
      {ConfigKind::kSft,
       "verl's `sft_trainer_engine.yaml` with the engine and optimizer of Megatron"},
      {ConfigKind::kCompare, "our own: the arms of a comparison, over a grpo or sft file"}};
  for (const auto& [kind, origin] : pages) {
    const OptionTable& table = option_table(kind);
    out += fmt::format("\n## `muoncore {}`\n\nThe tree is {}.\n", to_string(kind), origin);
    out += option_tables(table);
    if (kind == ConfigKind::kCompare) continue;
    out += difference_table(table);
    out += refusal_table(table);
  }
  return out;
}

}  // namespace muoncore::train
