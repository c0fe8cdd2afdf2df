// Runs commands side by side as processes, and leaves none behind: not when one fails, not when
// this process is told to stop.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace muoncore::train {

struct ChildCommand {
  std::string name;                    // for people: "adamw, seed 1"
  std::filesystem::path program;       // an executable
  std::vector<std::string> arguments;  // without the program itself
  std::vector<std::pair<std::string, std::string>>
      environment;            // added to ours, replacing what has the same name
  std::filesystem::path log;  // its standard output and error; its folder exists; replaced
};

enum class ChildState { kWaiting, kRunning, kDone };

// Told after every start and end, and about twice a second between: the state of each command, in
// their order, and the seconds since its start (its whole time once done).
struct ChildStatus {
  ChildState state = ChildState::kWaiting;
  double seconds = 0.0;
};
using ChildObserver = std::function<void(const std::vector<ChildStatus>&)>;

// Starts the commands in their order, at most `jobs` (>= 1) at a time, and returns when all have
// ended with status 0. When one fails, the others are ended (SIGTERM, after 5 seconds SIGKILL) and
// waited for, no further one is started, and Error is thrown with the command's name, how it ended,
// its log and the log's last lines. The same happens on SIGINT and SIGTERM (their handlers are
// replaced while this runs) and when the observer throws.
void run_children(const std::vector<ChildCommand>& commands, int jobs,
                  const ChildObserver& observer);

// The last `count` lines of a file, with a line end after each; "" when there is none.
std::string last_lines(const std::filesystem::path& file, size_t count);

}  // namespace muoncore::train
