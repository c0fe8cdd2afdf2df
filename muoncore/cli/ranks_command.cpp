#include "muoncore/cli/ranks_command.h"

#include <exception>

#include "muoncore/cli/commands.h"
#include "muoncore/comm/spawn.h"
#include "muoncore/core/check.h"
#include "muoncore/core/log.h"

namespace muoncore::cli {
namespace {

// Whoever cannot prepare tells the others before it ends.
void run_rank(const comm::LaunchEnv& env, const RanksCommand& command) {
  set_log_console(env.rank == 0);
  comm::WorldOptions options;
  std::exception_ptr unprepared;
  try {
    options.timeout = command.prepare();
  } catch (const Error&) {
    if (env.world_size == 1) throw;
    unprepared = std::current_exception();
  }
  try {
    comm::World world(env, options);
    try {
      world.run([&] {
        if (unprepared) std::rethrow_exception(unprepared);
        command.run(world);
      });
    } catch (const Error& error) {
      if (world.speaks()) throw;
      throw comm::SaidElsewhere(error.what());
    }
  } catch (const comm::SaidElsewhere& error) {
    set_log_console(false);
    log_message(LogLevel::kError, error.what());  // to this rank's log
    throw ExitStatus{1};
  }
}

}  // namespace

void add_nproc(CLI::App& command, std::optional<int64_t>& nproc) {
  command
      .add_option("--nproc", nproc,
                  "start this many ranks on this machine (torchrun --no-python does too)")
      ->check(CLI::PositiveNumber);
}

void run_on_ranks(const RanksCommand& command) {
  const comm::LaunchEnv env = comm::read_launch_env();
  check(!env.launched || !command.nproc,
        "--nproc {}: another launcher has started this process already, as one of {} ranks",
        command.nproc.value_or(0), env.world_size);
  if (command.nproc.value_or(1) == 1) return run_rank(env, command);
  std::vector<std::string> arguments = {comm::this_program()};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  const int status = comm::spawn_ranks(*command.nproc, comm::this_program(), arguments);
  if (status != 0) throw ExitStatus{status};
}

}  // namespace muoncore::cli
