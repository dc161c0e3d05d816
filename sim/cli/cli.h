#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/cli/answer.h"

namespace stepsim {

/// Finds the processes that compute the points of a study together with this one, or null: see
/// join_peers().
using JoinPeers = std::unique_ptr<Peers> (*)();

/// `stepsim ARGUMENTS`: finds the command, runs it, turns exceptions into messages and statuses.
[[nodiscard]] int run_stepsim(const std::vector<std::string>& arguments,
                              JoinPeers join_peers,
                              const FitRecords& fit_records);

/// Asks one command; `command` is one of command_names(). Raises InputError: there is no such
/// command; else as the command does.
[[nodiscard]] Answer ask_stepsim(const std::string& command, const Request& request);
[[nodiscard]] std::vector<std::string> command_names();

// The commands, one file each (catalog.cpp holds policies, models and profiles).
[[nodiscard]] Answer run_command(const Request& request);
[[nodiscard]] Answer compare_command(const Request& request);
[[nodiscard]] Answer sweep_command(const Request& request);
[[nodiscard]] Answer tune_command(const Request& request);
[[nodiscard]] Answer merge_command(const Request& request);
[[nodiscard]] Answer advise_command(const Request& request);
[[nodiscard]] Answer blame_command(const Request& request);
[[nodiscard]] Answer solve_command(const Request& request);
[[nodiscard]] Answer ladder_command(const Request& request);
[[nodiscard]] Answer plan_command(const Request& request);
[[nodiscard]] Answer buckets_command(const Request& request);
[[nodiscard]] Answer replay_command(const Request& request);
[[nodiscard]] Answer validate_command(const Request& request);
[[nodiscard]] Answer lengths_command(const Request& request);
[[nodiscard]] Answer trace_command(const Request& request);
[[nodiscard]] Answer policies_command(const Request& request);
[[nodiscard]] Answer models_command(const Request& request);
[[nodiscard]] Answer profiles_command(const Request& request);

}  // namespace stepsim
