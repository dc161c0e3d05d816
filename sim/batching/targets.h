#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/batching/lengths.h"

namespace stepsim {

/// Where the samples' second lengths come from (a translation, the tokens of an utterance): a
/// source of their own, or a ratio of the first.
struct TargetSource {
  std::optional<LengthSource> source;
  double ratio = 1;        ///< Without a source: length * ratio * exp(sigma z), z standard normal,
  double sigma = 0;        ///< rounded, at least 1.
  std::uint64_t seed = 0;  ///< Of z: Python's generator.
  std::int64_t cap = 0;    ///< Cut longer targets to this (0: no cut).
};

/// [sample] second lengths, each >= 1, of samples of these first lengths.
///
/// Args:
///     whole: The lengths are all of their source; then a file of targets must hold as many.
/// Raises:
///     InputError: as generate_lengths(); as many targets as samples are not there; a ratio that
///     is not above 0, sigma < 0, a target above kMaxSampleLength.
[[nodiscard]] std::vector<std::int64_t> generate_targets(const TargetSource& targets,
                                                         std::span<const std::int64_t> lengths,
                                                         bool whole);

/// Raises InputError for what is wrong whatever the lengths.
void check_targets(const TargetSource& targets);

}  // namespace stepsim
