// The launcher behind --nproc: one program as N ranks on this host.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace muoncore::comm {

// With the heartbeat's 15 s these keep the end of all within 30 s of any rank's last breath.
struct SpawnOptions {
  // After a rank failed: for the others to end by themselves, knowing why; then SIGTERM, and after
  // `kill_after` SIGKILL.
  std::chrono::milliseconds grace{6000};
  std::chrono::milliseconds kill_after{4000};
};

// Starts `program` (a path) n times with these arguments (argv[0] first) and the environment that
// read_launch_env reads; serves their store. SIGINT, SIGTERM and SIGHUP are passed on. A rank dies
// with this process. Returns once all have ended: 0, or the status of the first that failed (128 +
// the signal that ended it), which the ranks have said why. To be called from the main thread.
// Throws Error when a rank cannot be started, and when signals ended all of them, so that none
// could speak (unless such a signal was passed on).
int spawn_ranks(int64_t n, const std::string& program, const std::vector<std::string>& argv,
                const SpawnOptions& options = {});

// The path of the running program, for spawn_ranks.
std::string this_program();

}  // namespace muoncore::comm
