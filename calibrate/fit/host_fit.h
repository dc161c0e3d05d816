#pragma once

#include <span>
#include <vector>

#include "calibrate/samples/samples.h"
#include "costmodel/compute/shape_cost.h"

namespace stepsim {

/// Seconds in which the host of a GPU puts an op in, by the median step. 0: there are none.
[[nodiscard]] double fit_launch(std::span<const HostSample> hosts);

/// What it takes the host to meet a batch shape for the first time, as where a library compiles
/// kernels for it: in forward and backward, the mean over shapes. Empty where few shapes tell, or
/// where that is not two standard errors above 0.
[[nodiscard]] std::vector<ShapeCost> fit_meetings(std::span<const HostSample> meetings);

}  // namespace stepsim
