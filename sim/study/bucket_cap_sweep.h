#pragma once

#include <vector>

#include "costmodel/records/profile.h"
#include "sim/study/sweep.h"

namespace stepsim {

/// One bucket cap of bucket_cap_sweep().
struct CapPoint {
  Bytes cap;
  bool own = false;  ///< The scenario as it stands.
  SweepPoint point;  ///< Without labels.
};

/// One policy's steps at bucket caps of 1 MiB to 2 GiB (times 2), DDP's default and the scenario's
/// own, by size, without noise. A cap that the profile cannot price says so in
/// SweepPoint::not_priced. The scenario as it stands alone where a cap changes nothing: a list of
/// caps, buckets made without one, a single rank, a profile whose passes include the all-reduces.
/// Raises InputError: the scenario as it stands cannot be priced.
[[nodiscard]] std::vector<CapPoint> bucket_cap_sweep(const Scenario& scenario,
                                                     const Profile& profile,
                                                     const SweepOptions& options);

}  // namespace stepsim
