#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/samples/overlap_sample.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// Fits Interference to measurements of collectives beside compute; absent without samples.
///
/// `transfer` is the mean slowdown of the collectives: time beside compute over time alone, less 1.
/// `compute` is that of GEMMs and attention over what compute_slowdown() gives for waves.
/// `memory_share` follows from the slowdown of memory-bound work over 1 + compute. Means weigh all
/// samples alike, and nothing is below 0.
///
/// Waves are kept, and `multiprocessors` is set, where they explain the times better than one
/// factor does by the Bayesian information criterion. The same holds for a `limit` below what waves
/// would cost; without one the limit is the default of Interference, or the largest slowdown seen.
/// Intervals are Student's, 90 %. `max_channels` is the most that a sample held.
///
/// Args:
///     multiprocessors: The device's; 0 means unknown, and then there are no waves.
///     warnings: Gets a sentence for each thing that the samples cannot tell, or tell oddly.
[[nodiscard]] std::optional<InterferenceProfile> fit_interference(
    const std::vector<OverlapSample>& samples,
    int multiprocessors,
    std::vector<std::string>* warnings);

}  // namespace stepsim
