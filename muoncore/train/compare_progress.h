// Tells people how the runs of a comparison get on, from their metrics files: a line for each start
// and end, on a terminal a status line that moves, elsewhere a line every half minute.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "muoncore/core/timer.h"
#include "muoncore/train/compare_process.h"

namespace muoncore::train {

class CompareProgress {
 public:
  // `folders[i]` is where command i's run writes its metrics.jsonl.
  CompareProgress(std::vector<ChildCommand> commands, std::vector<std::filesystem::path> folders);
  ~CompareProgress();
  CompareProgress(const CompareProgress&) = delete;
  CompareProgress& operator=(const CompareProgress&) = delete;

  void observe(const std::vector<ChildStatus>& now);  // a ChildObserver

 private:
  void say_change(size_t i, const ChildStatus& now);

  std::vector<ChildCommand> commands_;
  std::vector<std::filesystem::path> folders_;
  std::vector<ChildState> states_;
  Stopwatch since_line_;
};

// "step 34, reward 0.710": where the run that writes into `folder` stands; "" before its first
// metrics.
std::string standing(const std::filesystem::path& folder);

}  // namespace muoncore::train
