#include "muoncore/train/config_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>

#include "muoncore/core/yaml_parse.h"
#include "muoncore/train/config_derived.h"

namespace muoncore::train {
namespace {

// A tree of sections whose leaves are options, in the order of the table.
struct Section {
  std::string name;
  const Option* option = nullptr;
  std::vector<Section> children;

  Section& child(const std::string& wanted) {
    for (Section& section : children)
      if (section.name == wanted) return section;
    return children.emplace_back(Section{wanted, nullptr, {}});
  }
};

Section sections_of(const OptionTable& table) {
  Section root;
  for (const Option& option : table.options()) {
    Section* section = &root;
    size_t begin = 0;
    for (size_t dot = option.path.find('.'); dot != std::string::npos;
         dot = option.path.find('.', begin)) {
      section = &section->child(option.path.substr(begin, dot - begin));
      begin = dot + 1;
    }
    section->child(option.path.substr(begin)).option = &option;
  }
  return root;
}

using Comment = std::function<std::string(const Option&)>;

void write(const Section& section, const Config& config, const Comment& comment, int depth,
           std::string& out) {
  for (const Section& child : section.children) {
    std::string indent(2 * depth, ' ');
    if (!child.option) {
      out += fmt::format("{}{}:\n", indent, quote_if_needed(child.name));
      write(child, config, comment, depth + 1, out);
      continue;
    }
    std::string line = fmt::format("{}{}: {}", indent, quote_if_needed(child.name),
                                   to_flow_yaml(config.node(child.option->path)));
    std::string remark = comment(*child.option);
    out += remark.empty() ? line + "\n" : fmt::format("{:<48}  # {}\n", line, remark);
  }
}

std::string remarks(const Config& config, const Option& option) {
  std::vector<std::string> parts;
  std::string origin = config.origin(option.path);
  if (origin != "default")
    parts.push_back((config.node(option.path).position.line > 0 ? "set at " : "set on the ") +
                    origin);
  if (option.verl_default) parts.push_back("verl's default: " + to_flow_yaml(*option.verl_default));
  if (option.added) parts.push_back("muoncore's own key");
  if (!option.note.empty()) parts.push_back(option.note);
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string derived_remarks(const Config& config) {
  bool known = !config.is_null("trainer.total_training_steps");
  int64_t steps = known ? config.integer("trainer.total_training_steps") : -1;
  optim::OptimizerConfig settings = optimizer_config(config, steps);
  std::string out = fmt::format("# optimizer: {}\n", settings.optimizer);
  if (settings.optimizer == "muon")
    out += fmt::format("# muon's factor: {} ({}), scale mode {}\n",
                       optim::resolved_extra_scale_factor(settings),
                       settings.muon_match_adamw_update_rms
                           ? fmt::format("derived from betas[0] = {}", settings.betas[0])
                           : "muon_extra_scale_factor",
                       settings.muon_scale_mode);
  if (known) {
    optim::SchedulerOptions schedule = optim::scheduler_options(settings);
    out += fmt::format("# schedule: {}, {} steps of warm-up, {} steps in all\n",
                       schedule.lr_decay_style, schedule.lr_warmup_steps, schedule.lr_decay_steps);
  }
  return out;
}

}  // namespace

std::string to_yaml(const Config& config) {
  std::string out;
  write(
      sections_of(config.table()), config, [](const Option&) { return ""; }, 0, out);
  return out;
}

std::string show_config(const Config& config) {
  std::string out;
  write(
      sections_of(config.table()), config,
      [&](const Option& option) { return remarks(config, option); }, 0, out);
  if (config.kind() != ConfigKind::kCompare) out += derived_remarks(config);
  return out;
}

}  // namespace muoncore::train
