#pragma once

#include <span>
#include <string>
#include <vector>

#include "costmodel/model/batch_shape.h"

namespace stepsim {

/// What the ranks' losses are weighted by.
enum class LossWeighting { None, Sample, Token };
/// "none", "sample" and "token", in the order of the values.
[[nodiscard]] std::span<const std::string> loss_weighting_names();

/// The factor on a rank's mean loss that turns DDP's average over ranks into the mean over all
/// units: 1 for None, else ranks * own / all.
///
/// Args:
///     own: The samples (Sample) or useful tokens (Token) of this rank in the step.
///     all: Their sum over the ranks, > 0.
/// Raises:
///     InputError: The weighting is not None, and all <= 0.
/// Source: DDP divides the sum of gradients by the number of ranks, whatever each rank holds.
[[nodiscard]] double loss_scale(LossWeighting weighting, double own, double all, int ranks);

/// [rank] The loss_scale of every rank in one step, from the shapes of the ranks' batches.
[[nodiscard]] std::vector<double> loss_scales(LossWeighting weighting,
                                              std::span<const BatchShape> ranks);

}  // namespace stepsim
