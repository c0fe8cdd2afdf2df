// What the launcher says about this process: the environment of `torchrun --no-python
// --nproc-per-node N muoncore ...` (torch.distributed.run, "Environment Variables"), which
// spawn_ranks (spawn.h) sets too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace muoncore::comm {

struct LaunchEnv {
  bool launched = false;  // false: a process of its own, a world of one
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;  // among the ranks of this host
  int64_t local_world_size = 1;
  std::string master_addr;  // of the store
  int master_port = 0;
  bool agent_store = false;  // the launcher serves the store; else rank 0 does
  std::string run_id;        // keys of one attempt of one run, apart from all others' in the store

  int64_t hosts() const { return world_size / local_world_size; }
};

// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
// TORCHELASTIC_{USE_AGENT_STORE, RUN_ID, RESTART_COUNT}. `get` is std::getenv, or a test's. Throws
// Error naming the variable: one of the first six is missing where another of the first four is
// set, is no number, or does not fit.
LaunchEnv read_launch_env(const std::function<const char*(const char*)>& get);
LaunchEnv read_launch_env();

}  // namespace muoncore::comm
