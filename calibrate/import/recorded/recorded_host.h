#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/fit/host_fit.h"
#include "calibrate/import/recorded/recorded_run.h"
#include "costmodel/compute/shape_cost.h"

namespace stepsim {

/// What the host of a GPU takes in recorded steps.
struct RecordedHost {
  LaunchCost launch;  ///< 0 seconds: the records do not tell.
  bool syncs = true;  ///< It waits for the device in each step.
  /// What first meetings of shapes cost it; empty where too few batches tell.
  std::vector<ShapeCost> new_shapes;
  std::string note;
  std::string
      warning;  ///< Why the host's times tell nothing; empty where they do or are not there.
};

/// Takes the steps that began with the device nearly as far as the host, which waits for room in
/// its queue where it is far ahead. The host's time is then the same whatever the batch's size;
/// that it is, two shapes of different sizes must show at least, else it is that of their kernels.
/// What a new shape costs is how much longer the host takes: kernels hide a part of it from the
/// device's own times.
[[nodiscard]] RecordedHost fit_recorded_host(std::span<const RecordedRun> runs);

}  // namespace stepsim
