#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/samples/samples.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// What overlapped measurements say about Interference; nothing without samples.
///
/// `transfer`: mean of beside / alone of the collectives, less 1. `compute`: the same of GEMMs and
/// attention over what compute_slowdown() gives for waves. `memory_share`: from memory-bound work,
/// over 1 + compute. Means weigh all samples alike; nothing is below 0.
///
/// Waves are kept, and `multiprocessors` set, where they explain the times better than one factor
/// does (the Bayesian information criterion); likewise a `limit` below what waves would cost.
/// Without such a limit it is that of Interference, or the largest slowdown seen. Intervals are
/// Student's, 90 %. `max_channels`: the most that a sample held.
///
/// Args:
///     multiprocessors: Of the device; 0 = unknown: no waves.
///     warnings: Gets a sentence for each thing that the samples cannot tell, or tell oddly.
[[nodiscard]] std::optional<InterferenceProfile> fit_interference(
    const std::vector<OverlapSample>& samples,
    int multiprocessors,
    std::vector<std::string>* warnings);

}  // namespace stepsim
