#pragma once

#include <vector>

#include "calibrate/fit/series.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// Entries for sizes that were never measured, one for each class, pass and dtype that has at least
/// two series or eight points: roofline sums [1, flops, bytes]; for ops that do not depend
/// on the batch [1, elements] or a table over the elements, whichever prices a size left out better
/// (a single size: proportional to the elements). For GEMMs on a device with `processors`, measured
/// in many sizes, also the roofline times gemm_ratio().
///
/// Their `random` error leaves out every fifth point; `block` leaves out one series after the
/// other (a twelfth of them, when there are more than twelve), which is what the entry is for and
/// what it is chosen by; `bias` is over both.
[[nodiscard]] std::vector<OpCost> fit_unmeasured_sizes(const std::vector<Series>& all,
                                                       std::int64_t processors = 0);

/// The number of processors that the waves of the measured GEMMs show; 0 = none. Raises nothing:
/// without enough GEMMs it is 0.
[[nodiscard]] std::int64_t find_processors(const std::vector<Series>& all);

}  // namespace stepsim
