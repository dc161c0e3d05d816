#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/batching/lengths.h"

namespace stepsim {

/// Where the second lengths of the samples come from (those of a translation, or of the text of an
/// utterance). They have a source of their own, or they follow from the first lengths by a ratio.
struct TargetSource {
  std::optional<LengthSource> source;
  double ratio = 1;        ///< Without a source: length * ratio * exp(sigma z), z standard normal,
  double sigma = 0;        ///< rounded, at least 1.
  std::uint64_t seed = 0;  ///< The seed of z, which Python's generator draws.
  std::int64_t cap = 0;    ///< Longer targets are cut to this length (0: no cut).
};

/// [sample] The second lengths, each >= 1, of samples with these first lengths.
///
/// Args:
///     whole: The lengths are all that their source has, so a file of targets must hold as many.
/// Raises:
///     InputError: as generate_lengths(); the source has fewer targets than there are samples; the
///     ratio is not above 0; sigma < 0; a target is above kMaxSampleLength.
[[nodiscard]] std::vector<std::int64_t> generate_targets(const TargetSource& targets,
                                                         std::span<const std::int64_t> lengths,
                                                         bool whole);

/// Checks what does not depend on the lengths. Raises InputError.
void check_targets(const TargetSource& targets);

}  // namespace stepsim
