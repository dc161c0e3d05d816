#pragma once

#include "costmodel/compute/knots.h"

namespace stepsim {

/// Turns (x, y) pairs in any order into knots: one for each distinct x, with the median of its y.
[[nodiscard]] Knots median_knots(Knots pairs);

/// Turns (x, y) pairs in any order into at most 40 knots. Inner neighbours closer than 3 % (or
/// more, when that leaves too many) become one knot at their mean; the first and the last x stay.
[[nodiscard]] Knots make_knots(Knots pairs);

/// Leaves out every knot that the line between those kept gives to within a fraction `tolerance` of
/// its value. The first and the last stay. `knots` is not empty.
[[nodiscard]] Knots prune_knots(const Knots& knots, double tolerance);

/// Makes the values of knots ascend: every run that descends is replaced by its mean (pool adjacent
/// violators), which gives the ascending sequence with the least squared relative change.
/// Source: Barlow et al., "Statistical Inference under Order Restrictions" (1972), 1.2.
void make_monotone(Knots* knots);

}  // namespace stepsim
