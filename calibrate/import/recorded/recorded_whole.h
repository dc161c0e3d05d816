#pragma once

#include <span>
#include <vector>

#include "calibrate/fit/pass_fit.h"

namespace stepsim {

/// Share of a whole step's compute that is booked as its forward; the rest is its backward.
inline constexpr double kForwardShare = 1.0 / 3;

/// A fit to whole steps.
struct WholeSteps {
  PassCost cost;                        ///< Forward and backward, all-reduces inside.
  std::vector<PassObservation> chosen;  ///< [step] that of the rank with the most work.
  int rounds = 0;
};

/// Fits the compute times of the rank with the most work in each step: the others' hold the wait
/// for it.
///
/// Which rank that is depends on the cost. It starts as the one with the largest tokens * length
/// and is chosen by the fit from then on, until the choice stays, at most five rounds. Of equal
/// ranks the first one is taken.
///
/// Args:
///     compute: Every rank's forward and backward in seconds, by step.
///     weight: As of fit_pass().
/// Raises:
///     InputError: as fit_pass().
[[nodiscard]] WholeSteps fit_whole_steps(std::span<const PassObservation> compute,
                                         AttentionKind attention,
                                         const PassWeight& weight = {});

/// One part of a cost. Its errors are those of the cost, enlarged so that two parts that err
/// independently, this share and the rest, together err as the whole.
[[nodiscard]] PassCost part_of(const PassCost& cost, double share);

}  // namespace stepsim
