// The report of a comparison as plain data, and its files. report.json holds all of it at full
// precision and is the only input of the plots, so that a report can be redrawn; report.md is for
// people.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "muoncore/train/report_metrics.h"
#include "muoncore/train/report_statistics.h"

namespace muoncore::train {

enum class Unit { kBytes, kSeconds, kScore, kPerSecond };
enum class Better { kLower, kHigher };

// One number per arm and repeat: a row of the report's table.
struct Quantity {
  std::string name;   // "optimizer_state_bytes"; unique
  std::string label;  // "optimizer state"
  Unit unit = Unit::kScore;
  Better better = Better::kHigher;
  Pairing pairing = Pairing::kSeeds;
  std::string source;                       // one sentence: what was measured, and where
  std::vector<std::vector<double>> values;  // [arm][repeat]; repeats are seeds, or timed steps
};

// A metric over the steps of every run.
struct Curve {
  std::string metric;                             // "critic/rewards/mean"
  std::vector<std::vector<MetricSeries>> series;  // [arm][seed]
};

struct ReportArm {
  std::string name;
  std::vector<std::string> overrides;  // what distinguishes it, "key=value"
};

struct Report {
  std::string title;
  std::vector<ReportArm> arms;  // the first is what the others are compared with
  std::vector<int64_t> seeds;
  std::vector<Quantity> quantities;
  std::vector<Curve> curves;
  std::vector<std::pair<std::string, std::string>>
      setup;                       // what was run, on what: name and value for people
  std::vector<std::string> notes;  // what a reader has to know to read the numbers rightly
};

// Everything of the report, with every spread, gap and verdict. Numbers that do not exist (a
// relative gap to 0, the ratio of a gap without spread) are null.
nlohmann::ordered_json to_json(const Report& report);

// The report for people: findings, tables, rule, setup, plots by relative path.
std::string to_markdown(const Report& report);

// The tables alone: one per arm after the first. Columns are padded, so that they read well as
// plain text too.
std::string tables(const Report& report);

// Writes report.json and report.md into `folder` (which exists). Throws Error when a file cannot be
// written.
void write_report(const Report& report, const std::filesystem::path& folder);

// Draws the PNG plots and report.html from folder/report.json: runs `python -m muoncore.report
// folder` with the Python that CMake was given, or the one that the environment variable
// MUONCORE_PYTHON names. Throws Error with the reason.
void draw_report(const std::filesystem::path& folder);

}  // namespace muoncore::train
