#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/points/peers.h"
#include "sim/study/advice.h"

namespace stepsim {

/// Finds the processes that compute the points of a study together with this one, or null: see
/// join_peers().
using JoinPeers = std::unique_ptr<Peers> (*)();

/// `stepsim ARGUMENTS`: finds the command, runs it, turns exceptions into messages and statuses.
[[nodiscard]] int run_stepsim(const std::vector<std::string>& arguments,
                              JoinPeers join_peers,
                              const FitRecords& fit_records);

}  // namespace stepsim
