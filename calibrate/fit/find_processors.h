#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/fit/series.h"

namespace stepsim {

/// The number of processors, even and at most 256, whose waves explain the times of the measured
/// GEMMs best; 0 when fewer than 100 points have sizes from 512 on, the only ones that tell.
///
/// Method: relative NNLS of [1, flops, bytes] and the work of whole waves of the usual tiles. A
/// thousand points rank all counts, up to 8000 decide between the best ten.
[[nodiscard]] std::int64_t find_processors(const std::vector<Series>& all);

}  // namespace stepsim
