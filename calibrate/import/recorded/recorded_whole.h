#pragma once

#include <span>
#include <vector>

#include "calibrate/fit/pass_fit.h"

namespace stepsim {

/// The share of a whole step's compute that is booked as its forward; the rest is its backward.
inline constexpr double kForwardShare = 1.0 / 3;

/// A fit to whole steps.
struct WholeSteps {
  PassCost cost;                        ///< Forward and backward with the all-reduces inside.
  std::vector<PassObservation> chosen;  ///< [step] The observation of the rank with the most work.
  int rounds = 0;
};

/// Fits the compute times of the rank with the most work in each step, since those of the other
/// ranks include the wait for it.
///
/// Which rank that is depends on the cost. It starts as the one with the largest tokens * length
/// and is chosen by the fit from then on, until the choice stays, at most five rounds. Of equal
/// ranks the first one is taken.
///
/// Args:
///     compute: The seconds of every rank's forward and backward, by step.
///     weight: See fit_pass(), which also says when InputError is raised.
[[nodiscard]] WholeSteps fit_whole_steps(std::span<const PassObservation> compute,
                                         AttentionKind attention,
                                         const PassWeight& weight = {});

/// Takes one part of a cost. Its errors are those of the cost, enlarged so that this share and the
/// rest, if they err independently, together err as much as the whole.
[[nodiscard]] PassCost part_of(const PassCost& cost, double share);

}  // namespace stepsim
