#include "muoncore/train/compare_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <thread>

#include "muoncore/core/check.h"

extern char** environ;

namespace muoncore::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPoll = std::chrono::milliseconds(50);
constexpr auto kObserve = std::chrono::milliseconds(500);
constexpr auto kPatience = std::chrono::seconds(5);
constexpr size_t kShownLines = 12;

volatile sig_atomic_t told_to_stop = 0;

// Notes SIGINT and SIGTERM while it lives, instead of ending the process with its children still
// running.
class StopSignals {
 public:
  StopSignals() {
    told_to_stop = 0;
    struct sigaction action = {};
    action.sa_handler = [](int signal) { told_to_stop = signal; };
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~StopSignals() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  struct sigaction old_int_ = {}, old_term_ = {};
};

std::vector<std::string> environment_of(const ChildCommand& command) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry;
    bool replaced = std::ranges::any_of(
        command.environment, [&](const auto& pair) { return text.starts_with(pair.first + "="); });
    if (!replaced) all.push_back(std::move(text));
  }
  for (const auto& [name, value] : command.environment) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

pid_t spawn(const ChildCommand& command) {
  std::vector<std::string> arguments = {command.program.string()};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> environment = environment_of(command);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, command.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = 0;
  int error = posix_spawn(&pid, command.program.c_str(), &actions, nullptr,
                          pointers(arguments).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  check(error == 0, "{}: {} with log {} cannot be started: {}", command.name,
        command.program.string(), command.log.string(), std::strerror(error));
  return pid;
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

class Pool {
 public:
  Pool(const std::vector<ChildCommand>& commands, int jobs, const ChildObserver& observer)
      : commands_(commands), observer_(observer), jobs_(jobs), children_(commands.size()) {}
  ~Pool() { end_all(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void run() {
    while (done_ < commands_.size()) {
      while (next_ < commands_.size() && running_ < jobs_) start(next_++);
      bool changed = reap();
      if (told_to_stop)
        fail("stopped by signal {}; the runs that had not ended were ended too",
             static_cast<int>(told_to_stop));
      if (changed || Clock::now() - observed_ > kObserve) observe();
      if (!changed) std::this_thread::sleep_for(kPoll);
    }
  }

 private:
  struct Child {
    pid_t pid = 0;  // 0: not running
    Clock::time_point start;
    ChildStatus status;
  };

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  void start(size_t i) {
    children_[i].pid = spawn(commands_[i]);
    children_[i].start = Clock::now();
    children_[i].status.state = ChildState::kRunning;
    ++running_;
    observe();
  }

  bool reap() {
    bool changed = false;
    for (size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      int status = 0;
      if (child.pid == 0 || waitpid(child.pid, &status, WNOHANG) == 0) continue;
      child.pid = 0;
      child.status = {.state = ChildState::kDone, .seconds = seconds_since(child.start)};
      --running_;
      ++done_;
      changed = true;
      check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "{} {}; its log is {}, which ends:\n{}",
            commands_[i].name, describe_end(status), commands_[i].log.string(),
            last_lines(commands_[i].log, kShownLines));
    }
    return changed;
  }

  void observe() {
    observed_ = Clock::now();
    std::vector<ChildStatus> all;
    for (Child& child : children_) {
      if (child.status.state == ChildState::kRunning)
        child.status.seconds = seconds_since(child.start);
      all.push_back(child.status);
    }
    observer_(all);
  }

  void end_all() {
    for (const Child& child : children_)
      if (child.pid != 0) kill(child.pid, SIGTERM);
    Clock::time_point told = Clock::now();
    for (Child& child : children_) {
      while (child.pid != 0 && waitpid(child.pid, nullptr, WNOHANG) == 0) {
        if (Clock::now() - told > kPatience) kill(child.pid, SIGKILL);
        std::this_thread::sleep_for(kPoll);
      }
      child.pid = 0;
    }
  }

  const std::vector<ChildCommand>& commands_;
  const ChildObserver& observer_;
  int jobs_;
  std::vector<Child> children_;
  size_t next_ = 0, done_ = 0;
  int running_ = 0;
  Clock::time_point observed_ = Clock::now();
};

}  // namespace

void run_children(const std::vector<ChildCommand>& commands, int jobs,
                  const ChildObserver& observer) {
  StopSignals signals;
  Pool(commands, jobs, observer).run();
}

std::string last_lines(const std::filesystem::path& file, size_t count) {
  std::ifstream in(file);
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
    if (lines.size() > count) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace muoncore::train
