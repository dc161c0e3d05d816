#pragma once

#include <string>
#include <vector>

#include "calibrate/fit/series.h"

namespace stepsim {

/// What is wrong with a series as the ground of a fit, one sentence each, the op named:
///
///   few values: fewer than 4 different sizes, so that no error could be held out;
///   constant: the time does not change although the size grows more than 4 times;
///   falling: a larger size took less than 70 % of a smaller one;
///   noise: the fit is off by more than 20 % on points held out.
///
/// `fitted` is the series' entry. Ops that do not depend on the batch give none.
[[nodiscard]] std::vector<std::string> fit_warnings(const Series& series, const OpCost& fitted);

}  // namespace stepsim
