// What a comparison runs: a start per seed (if there is one), then every arm with every seed from
// the start of that seed. Each run is this program in a folder of its own:
//   <output>/start/seed-1, <output>/arms/<arm>/seed-1, and its log beside it, seed-1.log
// A start per seed makes the spread honest: it holds what another start would have changed.
// Differences between arms are taken within a seed, so the start does not blur them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "muoncore/train/compare_process.h"
#include "muoncore/train/config.h"

namespace muoncore::train {

struct ComparePlan {
  ConfigKind kind = ConfigKind::kGrpo;  // of the arms
  std::filesystem::path base;
  std::optional<std::filesystem::path> start;  // an sft file
  std::vector<std::string> start_overrides;
  std::vector<std::string> overrides;  // of every arm
  std::vector<CompareArm> arms;        // the first is what the others are compared with
  std::vector<int64_t> seeds;
  int jobs = 1;       // runs side by side
  int64_t nproc = 1;  // ranks of each run, and of the timing
  int threads = 1;    // of each rank
  int cores = 1;      // of this machine that we may use
  int64_t timing_steps = 0;
  std::filesystem::path output_dir;
};

// Throws Error when an arm writes no metrics file. That there are two arms is load_config's to see.
ComparePlan plan_comparison(const Config& config);

// Throws Error when the output folder exists and is not empty.
void check_output(const ComparePlan& plan);

std::filesystem::path start_folder(const ComparePlan& plan, int64_t seed);
std::filesystem::path arm_folder(const ComparePlan& plan, const CompareArm& arm, int64_t seed);

// What the arm's configuration is made of beside the base file: the common overrides, its own, the
// seed, and the model of the start. For the last, the start of that seed must have run; throws
// Error when it left no model.
std::vector<std::string> arm_overrides(const ComparePlan& plan, const CompareArm& arm,
                                       int64_t seed);

// One command per seed; none without a start.
std::vector<ChildCommand> start_commands(const ComparePlan& plan);
// Seed by seed, so that the arms of one seed run side by side and meet the same disturbances.
std::vector<ChildCommand> arm_commands(const ComparePlan& plan);

}  // namespace muoncore::train
