// The commands of the program. Each lives in one file named after it, adds itself to the parser
// with one function, and throws `muoncore::Error` for anything the user can put right.
#pragma once

#include <CLI/CLI.hpp>

namespace muoncore::cli {

void add_parity(CLI::App& app);
void add_plan(CLI::App& app);
void add_config(CLI::App& app);
void add_generate(CLI::App& app);
void add_sft(CLI::App& app);
void add_grpo(CLI::App& app);
void add_compare(CLI::App& app);

void add_all(CLI::App& app);

// Thrown by a command that has already printed its findings and ends with a status of its own.
struct ExitStatus {
  int status;
};

}  // namespace muoncore::cli
