#include "muoncore/optim/matrix_layout.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <regex>
#include <utility>

#include "muoncore/core/check.h"
#include "muoncore/optim/check_choice.h"

namespace muoncore::optim {
namespace {

constexpr std::array<std::pair<LayoutKind, const char*>, 7> kWords{{
    {LayoutKind::kWhole, "whole"},
    {LayoutKind::kQkv, "qkv"},
    {LayoutKind::kHeads, "heads"},
    {LayoutKind::kGateUp, "gate_up"},
    {LayoutKind::kRows, "rows"},
    {LayoutKind::kExperts, "experts"},
    {LayoutKind::kConvolution, "convolution"},
}};

// One parameter under one rule.
struct Fit {
  const ParamSpec& spec;
  const LayoutRule& rule;

  template <typename... Args>
  void require(bool holds, fmt::format_string<Args...> why, Args&&... args) const {
    if (!holds)
      fail("layout rule '{}' does not fit {} of shape [{}]: {}", rule.pattern, spec.name,
           fmt::join(spec.shape, ", "), fmt::format(why, std::forward<Args>(args)...));
  }
  int64_t rows() const { return spec.shape[spec.shape.size() - 2]; }

  void dimensions() const;
  RowBlocks qkv() const;
  RowBlocks heads() const;
  RowBlocks gate_up() const;
  RowBlocks declared_rows() const;
};

void Fit::dimensions() const {
  const LayoutKind kind = rule.layout.kind;
  const size_t count = spec.shape.size();
  const char* word = to_string(kind);
  if (kind == LayoutKind::kWhole)
    require(count == 2, "whole takes 2 dimensions; a batch is experts, a kernel is convolution");
  else if (kind == LayoutKind::kExperts)
    require(count == 3, "experts takes 3 dimensions [experts, rows, columns]");
  else if (kind == LayoutKind::kConvolution)
    require(count >= 3, "convolution takes 3 dimensions or more [out, in, kernel...]");
  else
    require(count == 2 || count == 3, "{} takes [rows, columns] or [experts, rows, columns]", word);
}

RowBlocks Fit::qkv() const {
  const MatrixLayout& l = rule.layout;
  const int64_t due = (l.q_heads * (l.gate ? 2 : 1) + 2 * l.kv_heads) * l.head_dim;
  require(rows() == due, "{} q heads{} and {} kv heads of {} make {} rows", l.q_heads,
          l.gate ? " with a gate" : "", l.kv_heads, l.head_dim, due);
  if (l.per_head) return {{l.head_dim}, true};
  const int64_t k = l.interleaved ? l.head_dim : l.kv_heads * l.head_dim;
  const int64_t q = k * (l.q_heads / l.kv_heads);
  return l.gate ? RowBlocks{{q, q, k, k}, false} : RowBlocks{{q, k, k}, false};
}

RowBlocks Fit::heads() const {
  require(rows() % rule.layout.head_dim == 0, "{} rows are not a multiple of head_dim {}", rows(),
          rule.layout.head_dim);
  return {{rule.layout.head_dim}, true};
}

RowBlocks Fit::gate_up() const {
  require(rows() % 2 == 0, "{} rows have no halves", rows());
  return {{rows() / 2, rows() / 2}, false};
}

RowBlocks Fit::declared_rows() const {
  const auto& counts = rule.layout.blocks.rows;
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  require(rows() % sum == 0, "{} rows are not a multiple of the blocks [{}], which sum to {}",
          rows(), fmt::join(counts, ", "), sum);
  return rule.layout.blocks;
}

std::regex compile(const std::string& pattern) {
  try {
    return std::regex(pattern, std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    fail("layout rule '{}' is no regular expression: {}", pattern, error.what());
  }
}

std::string times(int64_t count) {
  if (count == 1) return "";
  return count == 2 ? ", twice" : fmt::format(", {} times", count);
}

}  // namespace

LayoutKind parse_layout_kind(std::string_view word) {
  std::vector<std::string> words;
  for (const auto& known : kWords) words.emplace_back(known.second);
  check_choice("matrix layout", std::string(word), words);
  return std::find_if(kWords.begin(), kWords.end(),
                      [&](const auto& known) { return word == known.second; })
      ->first;
}

const char* to_string(LayoutKind kind) {
  for (const auto& [known, name] : kWords)
    if (known == kind) return name;
  return "?";
}

void check_layout_rule(const LayoutRule& rule) {
  compile(rule.pattern);
  const MatrixLayout& l = rule.layout;
  const auto above_zero = [&](const char* key, int64_t value) {
    check(value > 0, "layout rule '{}': {} of {} must be above 0, got {}", rule.pattern, key,
          to_string(l.kind), value);
  };
  if (l.kind == LayoutKind::kQkv || l.kind == LayoutKind::kHeads)
    above_zero("head_dim", l.head_dim);
  if (l.kind == LayoutKind::kQkv) {
    above_zero("q_heads", l.q_heads);
    above_zero("kv_heads", l.kv_heads);
    check(l.q_heads % l.kv_heads == 0,
          "layout rule '{}': {} q heads cannot share {} kv heads evenly", rule.pattern, l.q_heads,
          l.kv_heads);
  }
  if (l.kind != LayoutKind::kRows) return;
  check(!l.blocks.rows.empty(), "layout rule '{}': rows needs the row count of each block",
        rule.pattern);
  for (int64_t count : l.blocks.rows) above_zero("a block", count);
}

ParamSpec with_layout(ParamSpec spec, const LayoutRule& rule) {
  const Fit fit{spec, rule};
  fit.dimensions();
  RowBlocks blocks;
  switch (rule.layout.kind) {
    case LayoutKind::kQkv:
      blocks = fit.qkv();
      break;
    case LayoutKind::kHeads:
      blocks = fit.heads();
      break;
    case LayoutKind::kGateUp:
      blocks = fit.gate_up();
      break;
    case LayoutKind::kRows:
      blocks = fit.declared_rows();
      break;
    case LayoutKind::kWhole:
    case LayoutKind::kExperts:
    case LayoutKind::kConvolution:
      break;
  }
  spec.blocks = std::move(blocks);
  spec.flatten = rule.layout.kind == LayoutKind::kConvolution;
  return spec;
}

LaidOutSpecs lay_out(std::vector<ParamSpec> specs, const std::vector<LayoutRule>& rules) {
  LaidOutSpecs out{std::move(specs), {}};
  out.patterns.resize(out.specs.size());
  for (const LayoutRule& rule : rules) {
    check_layout_rule(rule);
    const std::regex regex = compile(rule.pattern);
    bool decides = false;
    for (size_t i = 0; i < out.specs.size(); ++i) {
      const std::string& name = out.specs[i].name;
      if (!std::regex_match(name, regex)) continue;
      check(out.patterns[i].empty(), "{} is laid out by two rules, '{}' and '{}'", name,
            out.patterns[i], rule.pattern);
      out.specs[i] = with_layout(std::move(out.specs[i]), rule);
      out.patterns[i] = rule.pattern;
      decides = true;
    }
    check(decides, "layout rule '{}' decides nothing: it matches the whole name of no parameter",
          rule.pattern);
  }
  return out;
}

std::string describe_layout(const ParamSpec& spec) {
  const std::vector<int64_t> shape = matrix_shape(spec.shape, spec.flatten);
  std::vector<std::string> parts;
  if (spec.flatten)
    parts.push_back(
        fmt::format("[{}] of [{}]", fmt::join(shape, ", "), fmt::join(spec.shape, ", ")));
  if (shape.size() == 3) parts.push_back(fmt::format("{} slices", shape[0]));
  const auto& rows = spec.blocks.rows;
  if (!rows.empty()) {
    const int64_t group = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    const int64_t groups = shape[shape.size() - 2] / group;
    parts.push_back(fmt::format("split into rows {}{}{}", fmt::join(rows, " + "), times(groups),
                                spec.blocks.per_group && groups > 1 ? ", each alone" : ""));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace muoncore::optim
