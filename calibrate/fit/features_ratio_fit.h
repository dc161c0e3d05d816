#pragma once

#include <span>

#include "calibrate/fit/form_fits.h"

namespace stepsim {

/// Fits the features, coefficients and knots of a FeaturesRatio entry.
///
/// The features are fitted first, by relative_nnls(); those that get the coefficient 0 are left out
/// of the entry. A Smoother with blocks of `candidate.step` then goes through the logarithms of
/// time / features. Its values at the measured points and at both ends of every block between them
/// are the knots, without those that the others give to 0.1 %. The last knot, just beyond the
/// measured range, is the mean ratio of the upper fifth of the range, so that one point does not
/// tell where the curve goes.
void fit_features_ratio(const FormCandidate& candidate,
                        std::span<const OpPoint> points,
                        OpCost& cost);

}  // namespace stepsim
