#include "muoncore/comm/launch.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

std::string text(const std::function<const char*(const char*)>& get, const char* name) {
  const char* value = get(name);
  check(value != nullptr && *value != '\0',
        "environment: {} is not set, where RANK, WORLD_SIZE, LOCAL_RANK or LOCAL_WORLD_SIZE is; "
        "start with torchrun --no-python or --nproc, which set all, or unset them",
        name);
  return value;
}

int64_t number(const std::function<const char*(const char*)>& get, const char* name, int64_t least,
               int64_t most) {
  std::string value = text(get, name);
  int64_t number = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  check(error == std::errc() && end == value.data() + value.size(),
        "environment: {}={} is not a whole number", name, value);
  check(number >= least && number <= most, "environment: {}={} is not between {} and {}", name,
        value, least, most);
  return number;
}

}  // namespace

LaunchEnv read_launch_env(const std::function<const char*(const char*)>& get) {
  LaunchEnv env;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
    if (get(name) != nullptr) env.launched = true;
  if (!env.launched) return env;
  constexpr int64_t kMostRanks = 1 << 20;
  env.world_size = number(get, "WORLD_SIZE", 1, kMostRanks);
  env.rank = number(get, "RANK", 0, env.world_size - 1);
  env.local_world_size = number(get, "LOCAL_WORLD_SIZE", 1, env.world_size);
  env.local_rank = number(get, "LOCAL_RANK", 0, env.local_world_size - 1);
  check(env.world_size % env.local_world_size == 0,
        "environment: WORLD_SIZE={} is not a multiple of LOCAL_WORLD_SIZE={}", env.world_size,
        env.local_world_size);
  env.master_addr = text(get, "MASTER_ADDR");
  env.master_port = static_cast<int>(number(get, "MASTER_PORT", 1, 65535));
  const char* agent = get("TORCHELASTIC_USE_AGENT_STORE");
  env.agent_store = agent != nullptr && std::strcmp(agent, "True") == 0;
  const char* run = get("TORCHELASTIC_RUN_ID");
  const char* restart = get("TORCHELASTIC_RESTART_COUNT");
  env.run_id = fmt::format("{}/{}", run ? run : "none", restart ? restart : "0");
  return env;
}

LaunchEnv read_launch_env() {
  return read_launch_env([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace muoncore::comm
