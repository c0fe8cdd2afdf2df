#include "muoncore/comm/spawn.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "muoncore/comm/heartbeat.h"
#include "muoncore/comm/launch.h"
#include "muoncore/comm/store.h"
#include "muoncore/core/check.h"

extern char** environ;

namespace muoncore::comm {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int> received_signal{0};

void on_signal(int signal) { received_signal = signal; }

// Notes SIGINT, SIGTERM and SIGHUP while it lives.
class SignalNotes {
 public:
  SignalNotes() {
    received_signal = 0;
    struct sigaction action = {};
    action.sa_handler = on_signal;
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
  }
  ~SignalNotes() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }
  SignalNotes(const SignalNotes&) = delete;
  SignalNotes& operator=(const SignalNotes&) = delete;
  static int take() { return received_signal.exchange(0); }

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, 3> before_ = {};
};

bool is_launch_variable(const std::string& entry) {
  for (const char* name : {"RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=",
                           "MASTER_ADDR=", "MASTER_PORT=", "TORCHELASTIC_"})
    if (entry.rfind(name, 0) == 0) return true;
  return false;
}

std::vector<std::string> environment(int64_t rank, int64_t n, int port, const std::string& run) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_launch_variable(*entry)) entries.emplace_back(*entry);
  entries.push_back(fmt::format("RANK={}", rank));
  entries.push_back(fmt::format("WORLD_SIZE={}", n));
  entries.push_back(fmt::format("LOCAL_RANK={}", rank));
  entries.push_back(fmt::format("LOCAL_WORLD_SIZE={}", n));
  entries.push_back("MASTER_ADDR=127.0.0.1");
  entries.push_back(fmt::format("MASTER_PORT={}", port));
  entries.push_back("TORCHELASTIC_USE_AGENT_STORE=True");
  entries.push_back(fmt::format("TORCHELASTIC_RUN_ID={}", run));
  entries.push_back("TORCHELASTIC_RESTART_COUNT=0");
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t start(const std::string& program, std::vector<std::string> argv,
            std::vector<std::string> entries) {
  // All that allocates is done before the fork: other threads may hold the heap's lock.
  std::vector<char*> arguments = pointers(argv);
  std::vector<char*> variables = pointers(entries);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();  // errno is read after it
  check(child >= 0, "a rank could not be started: {}", ::strerror(errno));
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
  ::execve(program.c_str(), arguments.data(), variables.data());
  ::_exit(127);
}

std::string how_it_ended(int64_t rank, int status) {
  if (WIFSIGNALED(status))
    return fmt::format("rank {} was ended by signal {} ({})", rank, WTERMSIG(status),
                       ::strsignal(WTERMSIG(status)));
  return fmt::format("rank {} ended with status {}", rank, WEXITSTATUS(status));
}

// The ranks under way, and what is done to them.
class Ranks {
 public:
  void add(pid_t pid) { pids_.push_back(pid); }

  void signal(int signal) {
    for (pid_t pid : pids_)
      if (pid > 0) ::kill(pid, signal);
  }

  // Takes notice of those that ended. Returns false when none is left.
  bool collect(Store& store) {
    bool any = false;
    for (size_t r = 0; r < pids_.size(); ++r) {
      int status = 0;
      if (pids_[r] > 0 && ::waitpid(pids_[r], &status, WNOHANG) == pids_[r]) {
        pids_[r] = 0;
        spoke_ = spoke_ || WIFEXITED(status);
        if (status != 0 && first_status_ == 0) {
          first_status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
          failed_at_ = Clock::now();
          first_reason_ = how_it_ended(static_cast<int64_t>(r), status);
          set_end_reason(store, first_reason_);
        }
      }
      any = any || pids_[r] > 0;
    }
    return any;
  }

  int first_status() const { return first_status_; }
  const std::string& first_reason() const { return first_reason_; }
  bool spoke() const { return spoke_; }  // at least one ended by itself
  Clock::time_point failed_at() const { return failed_at_; }

 private:
  std::vector<pid_t> pids_;  // 0: ended
  int first_status_ = 0;
  std::string first_reason_;
  bool spoke_ = false;
  Clock::time_point failed_at_;
};

// Returns whether a signal was passed on.
bool wait_for_all(Ranks& ranks, Store& store, const SpawnOptions& options) {
  bool asked = false;
  bool passed_on = false;
  while (ranks.collect(store)) {
    if (int signal = SignalNotes::take()) {
      ranks.signal(signal);
      passed_on = true;
    }
    if (ranks.first_status() != 0) {
      auto since = Clock::now() - ranks.failed_at();
      if (since > options.grace && !std::exchange(asked, true)) ranks.signal(SIGTERM);
      if (since > options.grace + options.kill_after) ranks.signal(SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return passed_on;
}

}  // namespace

int spawn_ranks(int64_t n, const std::string& program, const std::vector<std::string>& argv,
                const SpawnOptions& options) {
  check(n >= 1, "{} ranks; at least 1 is needed", n);
  const bool runs = ::access(program.c_str(), X_OK) == 0;
  check(runs, "{} cannot be run: {}", program, ::strerror(errno));
  Store server = Store::serve(0);
  const std::string run = fmt::format("nproc-{}", ::getpid());
  Store store = server.prefixed(fmt::format("muoncore/{}/0", run));
  SignalNotes notes;
  Ranks ranks;
  try {
    for (int64_t r = 0; r < n; ++r)
      ranks.add(start(program, argv, environment(r, n, server.port(), run)));
  } catch (const Error&) {
    ranks.signal(SIGKILL);
    wait_for_all(ranks, store, options);
    throw;
  }
  const bool passed_on = wait_for_all(ranks, store, options);
  check(ranks.spoke() || passed_on, "{}; so were all other ranks, none is left to say more",
        ranks.first_reason());
  return ranks.first_status();
}

std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace muoncore::comm
