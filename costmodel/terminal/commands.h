#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "costmodel/terminal/screen.h"

namespace stepsim {

/// The exit statuses of both programs. Shells expect 130 from a program that Ctrl-C ended.
inline constexpr int kDone = 0;
inline constexpr int kAnswerIsNo = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kEnvironmentFault = 3;
inline constexpr int kInterrupted = 130;

/// One command: its name, a line for the overview, and the function that runs it.
struct Command {
  const char* name;
  const char* summary;
  std::function<int(const std::vector<std::string>& arguments)> run;
};

/// A program, or a command that has subcommands.
struct CommandSet {
  const char* name;     ///< "stepsim", "stepcal import"
  const char* purpose;  ///< What it is for, in paragraphs as in CommandHelp::usage.
  const char* closing;  ///< The end of the overview: examples and exit statuses.
  std::span<const Command> commands;
};

/// Runs the command that the first argument names, and handles `--help`, `help COMMAND` and
/// `--version`. Raises InputError when there is no such command.
[[nodiscard]] int run_commands(const CommandSet& set, const std::vector<std::string>& arguments);

/// Runs the work of a program, flushes standard output and returns the exit status. What the work
/// raises becomes a message and a status.
[[nodiscard]] int run_program(const std::string& name, const std::function<int()>& work);

/// Writes a message to standard error. On a terminal "error:" and "warning:" are coloured.
void print_message(const std::string& message);

/// Returns the screen behind standard output.
[[nodiscard]] Screen output_screen();

/// Writes a report to standard output as shown() lays it out for the screen.
void print_report(const std::string& text, const Screen& screen = output_screen());

}  // namespace stepsim
