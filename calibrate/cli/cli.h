#pragma once

#include <string>
#include <vector>

#include "costmodel/terminal/commands.h"

namespace stepsim {

/// Runs `stepcal ARGUMENTS`: finds the command, runs it, and turns exceptions into messages and
/// exit statuses.
[[nodiscard]] int run_stepcal(const std::vector<std::string>& arguments);

int measure_command(const std::vector<std::string>& arguments);
int fit_command(const std::vector<std::string>& arguments);
int calibrate_command(const std::vector<std::string>& arguments);
int check_command(const std::vector<std::string>& arguments);
/// `stepcal grid` chooses the batch shapes that calibrate/torch/stepsim_calibrate.py measures.
int grid_command(const std::vector<std::string>& arguments);
int import_command(const std::vector<std::string>& arguments);
int devices_command(const std::vector<std::string>& arguments);
/// `stepcal import kineto` reads traces of PyTorch's profiler, one for each rank.
int import_kineto_command(const std::vector<std::string>& arguments);
/// `stepcal import run-record` makes a profile of recorded training steps.
int import_run_record_command(const std::vector<std::string>& arguments);
int import_step_times_command(const std::vector<std::string>& arguments);

}  // namespace stepsim
