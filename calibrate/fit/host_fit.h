#pragma once

#include <span>
#include <vector>

#include "calibrate/samples/samples.h"
#include "costmodel/compute/shape_cost.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// What it takes the host of a GPU to put an op in.
struct LaunchCost {
  double seconds = 0;         ///< 0: there are no samples.
  double relative_error = 0;  ///< Standard deviation of what another run of such a length takes.
  double copies = 0;          ///< Profile::launched_copies
};

/// Takes the mean over the steps, without those that were held up for long. The error is what the
/// rounds differ by: on shared machines the host's speed drifts, and the mean of a run is then as
/// unsure as that of the measurement.
[[nodiscard]] LaunchCost fit_launch(std::span<const HostSample> hosts);

/// What it takes the host to meet a batch shape for the first time, as where a library compiles
/// kernels for it: in forward and backward, the mean over shapes. Empty where few shapes tell, or
/// where that is not two standard errors above 0.
[[nodiscard]] std::vector<ShapeCost> fit_meetings(std::span<const HostSample> meetings);

/// The medians of what the ranks' hosts took for the units of sharded training; there is one at
/// least.
[[nodiscard]] UnitHostTimes fit_unit_host(std::span<const UnitHostTimes> hosts);

}  // namespace stepsim
