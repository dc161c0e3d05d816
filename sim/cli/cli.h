#pragma once

#include <string>
#include <vector>

#include "costmodel/terminal/commands.h"

namespace stepsim {

/// `stepsim ARGUMENTS`: finds the command, runs it, turns exceptions into messages and statuses.
[[nodiscard]] int run_stepsim(const std::vector<std::string>& arguments);

// The commands, one file each (catalog.cpp holds policies, models and profiles).
int run_command(const std::vector<std::string>& arguments);
int compare_command(const std::vector<std::string>& arguments);
int sweep_command(const std::vector<std::string>& arguments);
int advise_command(const std::vector<std::string>& arguments);
int blame_command(const std::vector<std::string>& arguments);
int solve_command(const std::vector<std::string>& arguments);
int ladder_command(const std::vector<std::string>& arguments);
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
