#include "muoncore/train/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace muoncore::train {
namespace {

size_t display_width(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string with_separators(double value) {
  std::string digits = fmt::format("{:.0f}", std::abs(value));
  std::string text;
  if (value < 0 && digits != "0") text.push_back('-');
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

Scale bytes_scale(double bytes, bool exact) {
  if (exact) return {.factor = 1.0, .decimals = 0, .unit = "B"};
  if (std::abs(bytes) >= 1073741824.0)
    return {.factor = 1 / 1073741824.0, .decimals = 3, .unit = "GiB"};
  return {.factor = 1 / 1048576.0, .decimals = 2, .unit = "MiB"};
}

Scale seconds_scale(double seconds) {
  if (std::abs(seconds) < 1.0)
    return {.factor = 1e3, .decimals = std::abs(seconds) < 0.1 ? 2 : 1, .unit = "ms"};
  return {.factor = 1.0, .decimals = 2, .unit = "s"};
}

}  // namespace

Scale scale_of(const Quantity& quantity) {
  double center = spread_of(quantity.values.front(), quantity.pairing).center;
  switch (quantity.unit) {
    case Unit::kBytes:
      return bytes_scale(center, quantity.pairing == Pairing::kExact);
    case Unit::kSeconds:
      return seconds_scale(center);
    case Unit::kPerSecond:
      return {.factor = 1.0, .decimals = 0, .unit = "1/s"};
    case Unit::kScore:
      break;
  }
  return {.factor = 1.0, .decimals = 3, .unit = ""};
}

std::string with_unit(const std::string& label, const Scale& scale) {
  return scale.unit.empty() ? label : fmt::format("{} ({})", label, scale.unit);
}

std::string format_scaled(double value, const Scale& scale, bool plus) {
  double scaled = value * scale.factor;
  std::string text = scale.decimals == 0 ? with_separators(scaled)
                                         : fmt::format("{:.{}f}", scaled, scale.decimals);
  return fmt::format("{}{}", plus && scaled > 0 ? "+" : "", text);
}

std::string format_spread(const Spread& spread, const Quantity& quantity, const Scale& scale) {
  std::string text = format_scaled(spread.center, scale);
  if (quantity.pairing == Pairing::kExact || quantity.values.front().size() < 2) return text;
  text += " ± " + format_scaled(spread.deviation, scale);
  if (quantity.pairing == Pairing::kTimedSteps) return text;
  return text + fmt::format(" [{}, {}]", format_scaled(spread.min, scale),
                            format_scaled(spread.max, scale));
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 3);
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], display_width(row[c]));
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < rows[r].size(); ++c) {
      std::string padding(widths[c] - display_width(rows[r][c]), ' ');
      const auto& [left, right] =
          c == 0 ? std::pair(rows[r][c], padding) : std::pair(padding, rows[r][c]);
      text += fmt::format("| {}{} ", left, right);
    }
    text += "|\n";
    if (r > 0) continue;
    for (size_t c = 0; c < widths.size(); ++c)
      text += c == 0 ? fmt::format("|{:-<{}}", "", widths[c] + 2)
                     : fmt::format("|{:->{}}:", "", widths[c] + 1);
    text += "|\n";
  }
  return text;
}

std::string finding(const Report& report, const Quantity& quantity, size_t arm) {
  Scale scale = scale_of(quantity);
  Gap gap = judge(quantity.values.front(), quantity.values[arm], quantity.pairing);
  auto shown = [&](size_t a) {
    double center = spread_of(quantity.values[a], quantity.pairing).center;
    return fmt::format("{} {}{}{}", report.arms[a].name, format_scaled(center, scale),
                       scale.unit.empty() ? "" : " ", scale.unit);
  };
  std::string size;
  if (gap.verdict == Verdict::kHolds)
    size = std::isfinite(gap.relative) ? fmt::format(", {:.1f} % {}", 100 * std::abs(gap.relative),
                                                     gap.gap < 0 ? "lower" : "higher")
                                       : std::string(gap.gap < 0 ? ", lower" : ", higher");
  return fmt::format("{}: {} against {}{}: {}", quantity.label, shown(arm), shown(0), size,
                     words(gap.verdict, quantity.pairing));
}

}  // namespace muoncore::train
