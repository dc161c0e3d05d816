#pragma once

#include <span>
#include <string>
#include <vector>

#include "costmodel/terminal/screen.h"

namespace stepsim {

/// Exit statuses of both programs. 130 is what a shell expects of a program that Ctrl-C ended.
inline constexpr int kDone = 0;
inline constexpr int kAnswerIsNo = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kEnvironmentFault = 3;
inline constexpr int kInterrupted = 130;

/// One command: its name, a line for the overview, and what it does.
struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& arguments);
};

/// A program, or a command that has commands of its own.
struct CommandSet {
  const char* name;     ///< "stepsim", "stepcal import"
  const char* purpose;  ///< What it is for, as CommandHelp::usage has paragraphs.
  const char* closing;  ///< The last lines of the overview: examples, exit statuses.
  std::span<const Command> commands;
};

/// Runs the command that the first argument names; `--help`, `help COMMAND` and `--version` too.
/// Raises InputError: no such command.
[[nodiscard]] int run_commands(const CommandSet& set, const std::vector<std::string>& arguments);

/// Writes a message to standard error, "error:" and "warning:" in colour where it is a terminal.
void print_message(const std::string& message);

/// The screen of standard output.
[[nodiscard]] Screen output_screen();

/// Writes a report to standard output, see shown().
void print_report(const std::string& text);

}  // namespace stepsim
