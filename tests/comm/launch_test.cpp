// A launcher's environment: read, and refused when it does not fit.
#include "muoncore/comm/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "muoncore/core/check.h"
#include "tests/support/error_of.h"

namespace muoncore::comm {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

LaunchEnv read(const Variables& variables) {
  return read_launch_env([&](const char* name) -> const char* {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables torchrun() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RUN_ID", "job7"},
          {"TORCHELASTIC_RESTART_COUNT", "2"}};
}

std::string refusal(const std::string& name, const std::string& value) {
  Variables variables = torchrun();
  variables[name] = value;
  return error_of([&] { read(variables); });
}

TEST(LaunchEnv, OfTorchrun) {
  LaunchEnv env = read(torchrun());
  EXPECT_TRUE(env.launched);
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.world_size, 8);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 4);
  EXPECT_EQ(env.hosts(), 2);
  EXPECT_EQ(env.master_addr, "node0");
  EXPECT_EQ(env.master_port, 29500);
  EXPECT_TRUE(env.agent_store);
  EXPECT_EQ(env.run_id, "job7/2");
}

TEST(LaunchEnv, WithoutALauncher) {
  for (const Variables& variables :
       {Variables{}, Variables{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}}) {
    LaunchEnv env = read(variables);
    EXPECT_FALSE(env.launched);
    EXPECT_EQ(env.world_size, 1);
    EXPECT_EQ(env.rank, 0);
  }
}

TEST(LaunchEnv, Refusals) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    Variables variables = torchrun();
    variables.erase(name);
    EXPECT_THAT(error_of([&] { read(variables); }),
                HasSubstr(std::string("environment: ") + name + " is not set"));
    EXPECT_THAT(refusal(name, ""), HasSubstr(std::string(name) + " is not set"));
  }
  EXPECT_EQ(refusal("RANK", "8"), "environment: RANK=8 is not between 0 and 7");
  EXPECT_EQ(refusal("RANK", "-1"), "environment: RANK=-1 is not between 0 and 7");
  EXPECT_EQ(refusal("RANK", "1x"), "environment: RANK=1x is not a whole number");
  EXPECT_EQ(refusal("WORLD_SIZE", "8.0"), "environment: WORLD_SIZE=8.0 is not a whole number");
  EXPECT_EQ(refusal("WORLD_SIZE", "99999999999999999999"),
            "environment: WORLD_SIZE=99999999999999999999 is not a whole number");
  EXPECT_THAT(refusal("WORLD_SIZE", "0"), HasSubstr("WORLD_SIZE=0 is not between 1"));
  EXPECT_THAT(refusal("LOCAL_RANK", "4"), HasSubstr("LOCAL_RANK=4 is not between 0 and 3"));
  EXPECT_THAT(refusal("LOCAL_WORLD_SIZE", "9"), HasSubstr("not between 1 and 8"));
  EXPECT_THAT(refusal("LOCAL_WORLD_SIZE", "3"), HasSubstr("not a multiple of LOCAL_WORLD_SIZE=3"));
  EXPECT_THAT(refusal("MASTER_PORT", "0"), HasSubstr("MASTER_PORT=0 is not between 1 and 65535"));
}

}  // namespace
}  // namespace muoncore::comm
