#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/fit/series.h"
#include "costmodel/compute/op_cost.h"

namespace stepsim {

/// Fits entries for sizes that were never measured: one for each class, pass and dtype that has at
/// least two series or eight points.
///
/// An op that depends on the batch gets a roofline, a sum over [1, flops, bytes]; GEMMs that were
/// measured in many sizes on a device with processors (a number above 0) may also get it times
/// gemm_ratio(), for which wave_counts() says on how many. An op
/// that does not depend on the batch gets a sum over [1, elements] or a table over the elements, or
/// what is proportional to the elements where only one size was measured.
///
/// The form is chosen by the error on a size left out (`block`: one series after the other is left
/// out, or a twelfth of them when there are more than twelve), which is what the entry is for. The
/// `random` error leaves out every fifth point; `bias` is over both.
[[nodiscard]] std::vector<OpCost> fit_unmeasured_sizes(const std::vector<Series>& all,
                                                       std::int64_t processors = 0);

}  // namespace stepsim
