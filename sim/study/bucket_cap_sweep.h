#pragma once

#include <vector>

#include "sim/study/sweep.h"

namespace stepsim {

/// What stands for DDP's default in this scenario, as --set takes it: to state bucket_cap would
/// move the limit of the newest version's first bucket, too, unless that is stated as well.
[[nodiscard]] std::vector<Setting> default_cap_settings(const Scenario& scenario);

/// One bucket cap of bucket_cap_sweep().
struct CapPoint {
  Bytes cap;
  bool own = false;  ///< True: this is the scenario's own cap.
  SweepPoint point;  ///< The prediction; it has no labels.
};

/// Predicts one policy's steps at many bucket caps, ascending and without noise: powers of two from
/// 1 MiB to 2 GiB, DDP's default and the scenario's own cap. A cap that the profile cannot price
/// has the reason in SweepPoint::not_priced.
///
/// The result is only the unchanged scenario when the cap has no effect: the scenario lists several
/// caps or makes buckets without one, it has a single rank, or the profile's passes include the
/// all-reduces.
/// Raises InputError: the unchanged scenario cannot be priced.
[[nodiscard]] std::vector<CapPoint> bucket_cap_sweep(Jobs& jobs, const SweepOptions& options);

}  // namespace stepsim
