#pragma once

#include <functional>
#include <span>
#include <vector>

#include "calibrate/fit/pass_fit.h"
#include "costmodel/compute/pass_cost.h"

namespace stepsim {

/// What is expected of a pass without observations.
struct ExpectedPass {
  std::vector<double> row;  ///< [feature]
  double seconds = 0;
  double spread = 0;  ///< Relative standard deviation.
};

/// How forms of a pass are fitted and judged.
struct PassForms {
  /// The coefficients with some of the features alone, by the observations alone.
  std::function<std::vector<double>(const std::vector<bool>& used)> fit;
  /// The mean squared relative residual of coefficients.
  std::function<double(const std::vector<double>& coefficients)> residual;
  std::vector<ExpectedPass> expected;  ///< By weight.
};

/// The number of shapes that differ from one another by a tenth or more in samples or length.
[[nodiscard]] std::size_t distinct_shapes(std::span<const PassObservation> observations);

/// Where there are fewer distinct_shapes() than terms (constant, samples, tokens, tokens * length):
/// the coefficients of all forms with some of the terms that fit the observations as well as all
/// terms do. They are mixed with the cost's own so far that they are within one standard deviation
/// of what is expected for each of the shapes, in the mean. Nothing where the shapes tell the
/// terms.
[[nodiscard]] std::vector<std::vector<double>> other_forms(
    std::span<const PassObservation> observations, const PassCost& cost, const PassForms& forms);

}  // namespace stepsim
