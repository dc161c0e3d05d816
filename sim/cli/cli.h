#pragma once

#include <span>
#include <string>
#include <vector>

namespace stepsim {

/// Exit statuses of both programs.
inline constexpr int kDone = 0;
inline constexpr int kAnswerIsNo = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kEnvironmentFault = 3;

/// One command: its name, a line for the overview, its help's examples, and what it does.
struct Command {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& arguments);
};

/// `stepsim ARGUMENTS`: finds the command, runs it, turns exceptions into messages and statuses.
[[nodiscard]] int run_stepsim(const std::vector<std::string>& arguments);

// The commands, one file each (catalog.cpp holds policies, models and profiles).
int run_command(const std::vector<std::string>& arguments);
int compare_command(const std::vector<std::string>& arguments);
int sweep_command(const std::vector<std::string>& arguments);
int blame_command(const std::vector<std::string>& arguments);
int solve_command(const std::vector<std::string>& arguments);
int plan_command(const std::vector<std::string>& arguments);
int buckets_command(const std::vector<std::string>& arguments);
int figures_command(const std::vector<std::string>& arguments);
int replay_command(const std::vector<std::string>& arguments);
int validate_command(const std::vector<std::string>& arguments);
int lengths_command(const std::vector<std::string>& arguments);
int trace_command(const std::vector<std::string>& arguments);
int policies_command(const std::vector<std::string>& arguments);
int models_command(const std::vector<std::string>& arguments);
int profiles_command(const std::vector<std::string>& arguments);

}  // namespace stepsim
