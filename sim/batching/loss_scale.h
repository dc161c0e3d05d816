#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/model/batch_shape.h"

namespace stepsim {

/// The weightings of the ranks' losses: "none", "sample", "token".
[[nodiscard]] std::span<const std::string> weightings();

/// Raises InputError: there is no weighting of this name.
void check_weighting(std::string_view weighting);

/// The factor on a rank's mean loss that turns DDP's average over ranks into the mean over all
/// units: 1 for "none", else ranks * own / all.
///
/// Args:
///     own: The samples ("sample") or useful tokens ("token") of this rank in the step.
///     all: Their sum over the ranks, > 0.
/// Raises:
///     InputError: The weighting is unknown, or it is not "none" and all <= 0.
/// Source: DDP divides the sum of gradients by the number of ranks, whatever each rank holds.
[[nodiscard]] double loss_scale(std::string_view weighting, double own, double all, int ranks);

/// [rank] The loss_scale of every rank in one step, from the shapes of the ranks' batches.
[[nodiscard]] std::vector<double> loss_scales(std::string_view weighting,
                                              std::span<const BatchShape> ranks);

}  // namespace stepsim
