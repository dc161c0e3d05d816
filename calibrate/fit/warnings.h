#pragma once

#include <string>
#include <vector>

#include "calibrate/fit/series.h"

namespace stepsim {

/// Says what makes a series a poor basis for a fit, in one sentence each that names the op:
///
///   few values: fewer than 4 different sizes, so that no error could be held out;
///   constant: the time does not change although the size grows more than 4 times;
///   falling: a larger size took less than 70 % of a smaller one;
///   noise: the fit is off by more than 20 % on points held out.
///
/// `fitted` is the series' entry. Ops that do not depend on the batch get no warnings.
[[nodiscard]] std::vector<std::string> fit_warnings(const Series& series, const OpCost& fitted);

}  // namespace stepsim
