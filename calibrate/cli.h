#pragma once

#include <string>
#include <vector>

namespace stepsim {

/// Exit statuses. 130 is what a shell expects of a program that Ctrl-C ended.
inline constexpr int kDone = 0;
inline constexpr int kAnswerIsNo = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kEnvironmentFault = 3;
inline constexpr int kInterrupted = 130;

/// `stepcal ARGUMENTS`: finds the command, runs it, turns exceptions into messages and statuses.
[[nodiscard]] int run_stepcal(const std::vector<std::string>& arguments);

int measure_command(const std::vector<std::string>& arguments);
int fit_command(const std::vector<std::string>& arguments);
int calibrate_command(const std::vector<std::string>& arguments);
int check_command(const std::vector<std::string>& arguments);
int live_command(const std::vector<std::string>& arguments);
int import_command(const std::vector<std::string>& arguments);
int devices_command(const std::vector<std::string>& arguments);

}  // namespace stepsim
