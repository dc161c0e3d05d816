#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/fit/series.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// Fits features, coefficients and knots of a FeaturesRatio entry whose op and form are set.
///
/// The features are fitted first, by relative_nnls(). A Smoother with blocks of `step` then goes
/// through the logarithms of time / features; its values at the measured points and at both ends
/// of every block between them are the knots, without those that the others give to 0.1 %. The
/// last knot, just beyond the measured range, is the mean ratio of the upper fifth of the range:
/// one point must not tell where the curve goes.
///
/// Args:
///     features: Those with a coefficient of 0 are left out of the entry.
///     step: Rows in a block; 0 = no blocks.
///     processors: Of the device; only read when a feature needs it.
///     points: Not empty.
void fit_ratio_form(const std::vector<std::string>& features,
                    std::int64_t step,
                    std::int64_t processors,
                    const Op& op,
                    std::span<const SeriesPoint> points,
                    OpCost* cost);

}  // namespace stepsim
