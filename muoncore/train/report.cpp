#include "muoncore/train/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "muoncore/train/report_text.h"
#include "muoncore/train/run_dir.h"

namespace muoncore::train {
namespace {

using Json = nlohmann::ordered_json;

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

const char* name_of(Unit unit) {
  switch (unit) {
    case Unit::kBytes:
      return "bytes";
    case Unit::kSeconds:
      return "seconds";
    case Unit::kScore:
      return "score";
    case Unit::kPerSecond:
      return "per second";
  }
  return "?";
}

const char* name_of(Pairing pairing) {
  switch (pairing) {
    case Pairing::kSeeds:
      return "seeds";
    case Pairing::kTimedSteps:
      return "timed steps";
    case Pairing::kExact:
      return "exact";
  }
  return "?";
}

Json gap_json(const Gap& gap, Pairing pairing) {
  return {{"gap", gap.gap},
          {"relative", finite_or_null(gap.relative)},
          {"spread", gap.spread},
          {"ratio", finite_or_null(gap.ratio)},
          {"needed_ratio", gap.needed},
          {"same_sign", gap.same_sign},
          {"differences", gap.differences},
          {"verdict", words(gap.verdict, pairing)}};
}

Json quantity_json(const Report& report, const Quantity& quantity) {
  Json arms = Json::object(), gaps = Json::object();
  for (size_t a = 0; a < report.arms.size(); ++a) {
    const std::string& name = report.arms[a].name;
    Spread spread = spread_of(quantity.values[a], quantity.pairing);
    arms[name] = {{"center", spread.center},
                  {"deviation", spread.deviation},
                  {"min", spread.min},
                  {"max", spread.max},
                  {"values", quantity.values[a]}};
    if (a == 0) continue;
    gaps[name] =
        gap_json(judge(quantity.values[0], quantity.values[a], quantity.pairing), quantity.pairing);
    gaps[name]["finding"] = finding(report, quantity, a);
  }
  return {{"name", quantity.name},
          {"label", quantity.label},
          {"unit", name_of(quantity.unit)},
          {"better", quantity.better == Better::kLower ? "lower" : "higher"},
          {"repeats", name_of(quantity.pairing)},
          {"source", quantity.source},
          {"arms", arms},
          {"gaps", gaps}};
}

Json curve_json(const Report& report, const Curve& curve) {
  Json arms = Json::object();
  for (size_t a = 0; a < report.arms.size(); ++a) {
    Json runs = Json::array();
    for (size_t s = 0; s < report.seeds.size(); ++s)
      runs.push_back({{"seed", report.seeds[s]},
                      {"steps", curve.series[a][s].steps},
                      {"values", curve.series[a][s].values}});
    arms[report.arms[a].name] = std::move(runs);
  }
  return arms;
}

std::string list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += fmt::format("- {}\n", item);
  return text;
}

std::string findings(const Report& report) {
  std::vector<std::string> sentences;
  for (size_t a = 1; a < report.arms.size(); ++a)
    for (const Quantity& quantity : report.quantities)
      sentences.push_back(finding(report, quantity, a));
  return list(sentences);
}

std::string sources(const Report& report) {
  std::vector<std::string> lines;
  for (const Quantity& quantity : report.quantities)
    lines.push_back(fmt::format("{} ({} is better): {}", quantity.label,
                                quantity.better == Better::kLower ? "lower" : "higher",
                                quantity.source));
  return list(lines);
}

std::string setup(const Report& report) {
  std::vector<std::string> lines;
  for (const ReportArm& arm : report.arms)
    lines.push_back(fmt::format("arm {}: `{}`", arm.name, fmt::join(arm.overrides, " ")));
  lines.push_back(fmt::format("seeds: {}", fmt::join(report.seeds, ", ")));
  for (const auto& [what, value] : report.setup)
    lines.push_back(fmt::format("{}: {}", what, value));
  return list(lines);
}

std::string shown_ratio(const Gap& gap) {
  if (std::isinf(gap.ratio)) return "no spread";
  return gap.ratio > 1000 ? "> 1000" : fmt::format("{:.1f}", gap.ratio);
}

std::vector<std::string> table_row(const Quantity& quantity, size_t arm) {
  Scale scale = scale_of(quantity);
  Gap gap = judge(quantity.values[0], quantity.values[arm], quantity.pairing);
  bool no_spread = quantity.pairing == Pairing::kExact || gap.verdict == Verdict::kOneRepeat;
  auto shown = [&](size_t a) {
    return format_spread(spread_of(quantity.values[a], quantity.pairing), quantity, scale);
  };
  return {with_unit(quantity.label, scale),
          shown(0),
          shown(arm),
          format_scaled(gap.gap, scale, /*plus=*/true),
          std::isfinite(gap.relative) ? fmt::format("{:+.1f}", 100 * gap.relative) : "",
          no_spread ? "" : format_scaled(gap.spread, scale),
          no_spread ? "" : shown_ratio(gap),
          words(gap.verdict, quantity.pairing)};
}

}  // namespace

nlohmann::ordered_json to_json(const Report& report) {
  Json arms = Json::array(), quantities = Json::array(), curves = Json::object(),
       setup = Json::object();
  for (const ReportArm& arm : report.arms)
    arms.push_back({{"name", arm.name}, {"overrides", arm.overrides}});
  for (const Quantity& quantity : report.quantities)
    quantities.push_back(quantity_json(report, quantity));
  for (const Curve& curve : report.curves) curves[curve.metric] = curve_json(report, curve);
  for (const auto& [what, value] : report.setup) setup[what] = value;
  return {
      {"title", report.title},    {"arms", arms},
      {"seeds", report.seeds},    {"rule", verdict_rule(static_cast<int64_t>(report.seeds.size()))},
      {"quantities", quantities}, {"setup", setup},
      {"notes", report.notes},    {"curves", curves}};
}

std::string tables(const Report& report) {
  std::string text;
  for (size_t a = 1; a < report.arms.size(); ++a) {
    std::vector<std::vector<std::string>> rows = {{"", report.arms[0].name, report.arms[a].name,
                                                   "gap", "gap %", "spread", "gap/spread",
                                                   "verdict"}};
    for (const Quantity& quantity : report.quantities) rows.push_back(table_row(quantity, a));
    if (a > 1) text += "\n";
    text += format_table(rows);
  }
  return text;
}

std::string to_markdown(const Report& report) {
  return fmt::format(
      "# {}\n\n## What was found\n\n{}\n## Numbers\n\nMean ± standard deviation [least, most] over "
      "the seeds; times: "
      "median ± robust deviation over the timed steps.\n\n{}\n{}\n\n## Where the numbers come "
      "from\n\n{}\n{}\n"
      "## Set-up\n\n{}",
      report.title, findings(report), tables(report),
      verdict_rule(static_cast<int64_t>(report.seeds.size())), sources(report), list(report.notes),
      setup(report));
}

void write_report(const Report& report, const std::filesystem::path& folder) {
  write_file_atomically(folder / "report.json", to_json(report).dump(1) + "\n");
  write_file_atomically(folder / "report.md", to_markdown(report));
}

}  // namespace muoncore::train
