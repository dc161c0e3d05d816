#pragma once

#include <vector>

#include "calibrate/fit/series.h"
#include "costmodel/profile.h"

namespace stepsim {

/// Entries for sizes that were never measured, one for each class, pass and dtype that has at least
/// two series or eight points: roofline sums [1, flops, bytes]; [1, elements] for ops that do not
/// depend on the batch (a single size: proportional to the elements, at least one size needed).
///
/// Their `random` error leaves out every fifth point; `block` leaves out one series after the
/// other, which is what the entry is for; `bias` is over both.
[[nodiscard]] std::vector<OpCost> fit_general(const std::vector<Series>& all);

}  // namespace stepsim
