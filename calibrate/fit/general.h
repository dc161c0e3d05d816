#pragma once

#include <vector>

#include "calibrate/fit/series.h"
#include "costmodel/profile.h"

namespace stepsim {

/// Entries for sizes that were never measured, one for each class, pass and dtype that has at least
/// two series or eight points: roofline sums [1, flops, bytes]; for ops that do not depend
/// on the batch [1, elements] or a table over the elements, whichever prices a size left out better
/// (a single size: proportional to the elements).
///
/// Their `random` error leaves out every fifth point; `block` leaves out one series after the
/// other, which is what the entry is for; `bias` is over both.
[[nodiscard]] std::vector<OpCost> fit_general(const std::vector<Series>& all);

}  // namespace stepsim
